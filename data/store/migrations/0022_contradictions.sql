CREATE TABLE contradictions (
    slot_start TIMESTAMPTZ NOT NULL,
    gpu_uuid VARCHAR NOT NULL,
    mig_instance VARCHAR NOT NULL,
    counter VARCHAR NOT NULL,
    reading DOUBLE NOT NULL,
    others VARCHAR NOT NULL,
    PRIMARY KEY (slot_start, gpu_uuid, mig_instance, counter)
);
