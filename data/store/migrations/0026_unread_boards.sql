-- Rows that were kept before count boards that nobody read as the mean of the others.
DELETE FROM job_slots;
DELETE FROM kept_slots WHERE table_name = 'job_slots';
