ALTER TABLE board_activity ADD COLUMN fp32_active DOUBLE;
