-- Whose word the directory is: the id of the agent whose configuration named it, or 'host' for somebody who may
-- decide what runs on this machine. NULL: anybody's; then it counts in isolated places only.
ALTER TABLE execution_workspaces ADD COLUMN cwd_from TEXT;
