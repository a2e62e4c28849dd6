ALTER TABLE allocations ADD COLUMN start_seconds DOUBLE;
