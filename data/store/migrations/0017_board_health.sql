ALTER TABLE board_activity ADD COLUMN temperature_celsius DOUBLE;
ALTER TABLE board_activity ADD COLUMN memory_temperature_celsius DOUBLE;
ALTER TABLE board_activity ADD COLUMN clock_mhz DOUBLE;
ALTER TABLE board_activity ADD COLUMN uncorrected_errors DOUBLE;
ALTER TABLE board_activity ADD COLUMN remapped_rows DOUBLE;
ALTER TABLE board_activity ADD COLUMN remap_failed DOUBLE;
