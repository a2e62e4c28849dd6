CREATE TABLE board_activity (
    slot_start TIMESTAMPTZ NOT NULL,
    gpu_uuid VARCHAR NOT NULL,
    mig_instance VARCHAR NOT NULL,
    engine_active DOUBLE,
    sm_active DOUBLE,
    tensor_active DOUBLE,
    dram_active DOUBLE,
    pcie_bytes_per_second DOUBLE,
    nvlink_bytes_per_second DOUBLE,
    throttled_ratio DOUBLE,
    power_ratio DOUBLE,
    PRIMARY KEY (slot_start, gpu_uuid, mig_instance)
);
CREATE TABLE slow_work (
    cycle_id VARCHAR NOT NULL,
    record VARCHAR NOT NULL,
    PRIMARY KEY (cycle_id)
);
