CREATE TABLE board_xids (
    gpu_uuid VARCHAR NOT NULL,
    xid BIGINT NOT NULL,
    node VARCHAR NOT NULL,
    gpu_index VARCHAR NOT NULL,
    first_seen_at TIMESTAMPTZ NOT NULL,
    last_seen_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (gpu_uuid, xid)
);
