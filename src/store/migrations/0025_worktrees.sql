-- The directory that Berth made for the workspace, and the directory with the repository that it was made from: from
-- before it is made until after it is removed.
ALTER TABLE execution_workspaces ADD COLUMN worktree_path TEXT;
ALTER TABLE execution_workspaces ADD COLUMN worktree_of TEXT;
CREATE INDEX execution_workspaces_worktree_idx ON execution_workspaces (id)
  WHERE status = 'archived' AND worktree_path IS NOT NULL;
