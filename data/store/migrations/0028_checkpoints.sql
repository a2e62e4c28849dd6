ALTER TABLE job_progress ADD COLUMN checkpoint_at TIMESTAMPTZ;
ALTER TABLE job_progress ALTER COLUMN done_ratio DROP NOT NULL;
