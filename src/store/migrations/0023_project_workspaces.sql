-- The states of a project that are no status of Paperclip's become what they are there: times.
ALTER TABLE projects ADD COLUMN lead_agent_id TEXT REFERENCES agents (id) ON DELETE SET NULL;
ALTER TABLE projects ADD COLUMN target_date TEXT;
ALTER TABLE projects ADD COLUMN color TEXT;
ALTER TABLE projects ADD COLUMN icon TEXT;
ALTER TABLE projects ADD COLUMN pause_reason TEXT;
ALTER TABLE projects ADD COLUMN paused_at BIGINT;
ALTER TABLE projects ADD COLUMN archived_at BIGINT;
UPDATE projects SET paused_at = updated_at, pause_reason = 'manual' WHERE status = 'paused';
UPDATE projects SET archived_at = updated_at WHERE status = 'archived';
UPDATE projects SET status = CASE status WHEN 'archived' THEN 'completed' ELSE 'in_progress' END
  WHERE status IN ('active', 'paused', 'archived');
CREATE INDEX projects_lead_idx ON projects (lead_agent_id) WHERE lead_agent_id IS NOT NULL;

-- Where the work of a project is: a directory of this machine, a repository elsewhere, or both. cwd_from as in
-- execution_workspaces.
CREATE TABLE project_workspaces (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  source_type TEXT NOT NULL,
  cwd TEXT,
  cwd_from TEXT,
  repo_url TEXT,
  repo_ref TEXT,
  default_ref TEXT,
  visibility TEXT NOT NULL,
  setup_command TEXT,
  cleanup_command TEXT,
  remote_provider TEXT,
  remote_workspace_ref TEXT,
  shared_workspace_key TEXT,
  metadata TEXT,
  runtime_config TEXT,
  is_primary BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX project_workspaces_project_idx ON project_workspaces (project_id);
CREATE INDEX project_workspaces_company_idx ON project_workspaces (company_id);
ALTER TABLE issues ADD COLUMN project_workspace_id TEXT REFERENCES project_workspaces (id) ON DELETE SET NULL;
CREATE INDEX issues_project_workspace_idx ON issues (project_workspace_id)
  WHERE project_workspace_id IS NOT NULL;
CREATE INDEX execution_workspaces_project_idx ON execution_workspaces (project_id);
CREATE INDEX execution_workspaces_project_workspace_idx ON execution_workspaces (project_workspace_id)
  WHERE project_workspace_id IS NOT NULL;
