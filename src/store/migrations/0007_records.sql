-- What agents work on: issues with their comments and documents, projects, and what is remembered of
-- an agent between its runs. Run ids carry no foreign key: a run may be one that another control plane
-- started.

-- Two locks of an issue. `checkout_run_id` is the run that owns it while it is in progress,
-- `execution_run_id` the one that is being executed for it. Every write of a row compares both, the
-- status and the assignee with what the writer saw.
ALTER TABLE issues ADD COLUMN issue_number BIGINT NOT NULL DEFAULT 0;
ALTER TABLE issues ADD COLUMN work_mode TEXT NOT NULL DEFAULT 'standard';
ALTER TABLE issues ADD COLUMN priority TEXT NOT NULL DEFAULT 'medium';
ALTER TABLE issues ADD COLUMN parent_id TEXT REFERENCES issues (id) ON DELETE SET NULL;
ALTER TABLE issues ADD COLUMN assignee_agent_id TEXT REFERENCES agents (id) ON DELETE SET NULL;
ALTER TABLE issues ADD COLUMN assignee_user_id TEXT;
ALTER TABLE issues ADD COLUMN checkout_run_id TEXT;
ALTER TABLE issues ADD COLUMN execution_run_id TEXT;
ALTER TABLE issues ADD COLUMN execution_locked_at BIGINT;
ALTER TABLE issues ADD COLUMN created_by_agent_id TEXT REFERENCES agents (id) ON DELETE SET NULL;
ALTER TABLE issues ADD COLUMN created_by_user_id TEXT;
ALTER TABLE issues ADD COLUMN origin_kind TEXT NOT NULL DEFAULT 'manual';
ALTER TABLE issues ADD COLUMN origin_id TEXT;
ALTER TABLE issues ADD COLUMN origin_run_id TEXT;
ALTER TABLE issues ADD COLUMN request_depth BIGINT NOT NULL DEFAULT 0;
ALTER TABLE issues ADD COLUMN billing_code TEXT;
ALTER TABLE issues ADD COLUMN execution_policy TEXT;
ALTER TABLE issues ADD COLUMN started_at BIGINT;
ALTER TABLE issues ADD COLUMN completed_at BIGINT;
ALTER TABLE issues ADD COLUMN cancelled_at BIGINT;
ALTER TABLE issues ADD COLUMN hidden_at BIGINT;
CREATE INDEX issues_assignee_idx ON issues (assignee_agent_id, status)
  WHERE assignee_agent_id IS NOT NULL;
CREATE INDEX issues_parent_idx ON issues (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX issues_project_idx ON issues (project_id) WHERE project_id IS NOT NULL;

-- `issue_id` waits for `blocker_id`.
CREATE TABLE issue_blockers (
  issue_id TEXT NOT NULL REFERENCES issues (id) ON DELETE CASCADE,
  blocker_id TEXT NOT NULL REFERENCES issues (id) ON DELETE CASCADE,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (issue_id, blocker_id)
);
CREATE INDEX issue_blockers_blocker_idx ON issue_blockers (blocker_id);

CREATE TABLE issue_comments (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  issue_id TEXT NOT NULL REFERENCES issues (id) ON DELETE CASCADE,
  author_type TEXT NOT NULL,
  author_agent_id TEXT REFERENCES agents (id) ON DELETE SET NULL,
  author_user_id TEXT,
  created_by_run_id TEXT,
  body TEXT NOT NULL,
  presentation TEXT,
  metadata TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX issue_comments_issue_idx ON issue_comments (issue_id, created_at);

-- A document is its newest revision; older ones stay.
CREATE TABLE issue_documents (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  issue_id TEXT NOT NULL REFERENCES issues (id) ON DELETE CASCADE,
  key TEXT NOT NULL,
  title TEXT,
  format TEXT NOT NULL DEFAULT 'markdown',
  body TEXT NOT NULL,
  latest_revision_id TEXT NOT NULL,
  latest_revision_number BIGINT NOT NULL,
  created_by_agent_id TEXT REFERENCES agents (id) ON DELETE SET NULL,
  created_by_user_id TEXT,
  updated_by_agent_id TEXT REFERENCES agents (id) ON DELETE SET NULL,
  updated_by_user_id TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (issue_id, key)
);

CREATE TABLE issue_document_revisions (
  id TEXT NOT NULL PRIMARY KEY,
  document_id TEXT NOT NULL REFERENCES issue_documents (id) ON DELETE CASCADE,
  revision_number BIGINT NOT NULL,
  title TEXT,
  format TEXT NOT NULL DEFAULT 'markdown',
  body TEXT NOT NULL,
  change_summary TEXT,
  created_by_agent_id TEXT REFERENCES agents (id) ON DELETE SET NULL,
  created_by_user_id TEXT,
  created_by_run_id TEXT,
  created_at BIGINT NOT NULL,
  UNIQUE (document_id, revision_number)
);

ALTER TABLE projects ADD COLUMN url_key TEXT NOT NULL DEFAULT '';
ALTER TABLE projects ADD COLUMN description TEXT;
CREATE INDEX projects_url_key_idx ON projects (company_id, url_key);
CREATE INDEX agents_url_key_idx ON agents (company_id, url_key);

-- Written by upsert: runs that end at the same time never collide on it.
CREATE TABLE agent_runtime_state (
  agent_id TEXT NOT NULL PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  adapter_type TEXT NOT NULL,
  session_id TEXT,
  session_display_id TEXT,
  session_params_json TEXT,
  state_json TEXT NOT NULL DEFAULT '{}',
  last_run_id TEXT,
  last_run_status TEXT,
  total_input_tokens BIGINT NOT NULL DEFAULT 0,
  total_output_tokens BIGINT NOT NULL DEFAULT 0,
  total_cached_input_tokens BIGINT NOT NULL DEFAULT 0,
  total_cost_cents BIGINT NOT NULL DEFAULT 0,
  last_error TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

-- The session of an agent for one task.
CREATE TABLE agent_task_sessions (
  agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
  task_key TEXT NOT NULL,
  adapter_type TEXT NOT NULL,
  session_params_json TEXT,
  session_display_id TEXT,
  last_run_id TEXT,
  last_error TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (agent_id, task_key)
);

-- How an agent was configured before and after each change, as JSON.
CREATE TABLE agent_config_revisions (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
  source TEXT NOT NULL,
  rolled_back_from_id TEXT,
  changed_keys TEXT NOT NULL,
  before_config TEXT NOT NULL,
  after_config TEXT NOT NULL,
  created_by_agent_id TEXT,
  created_by_user_id TEXT,
  created_at BIGINT NOT NULL
);
CREATE INDEX agent_config_revisions_agent_idx ON agent_config_revisions (agent_id, created_at);
