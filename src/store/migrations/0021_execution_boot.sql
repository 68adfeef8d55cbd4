-- The boot of the machine in which it was to start. A power cut can take the names of its output files away: that there
-- are none says something only within the same boot.
ALTER TABLE executions ADD COLUMN boot_id TEXT;
