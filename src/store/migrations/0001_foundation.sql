-- The tables of the environment runtime. One dialect for both back ends: TEXT ids (lower-case UUIDs)
-- and enumerations, BIGINT microseconds since 1970 UTC, INTEGER booleans, TEXT documents (JSON).
-- Foreign keys stand where the other row is ours for certain; run, issue and workspace ids of a lease
-- may come from outside and carry none.

CREATE TABLE companies (
  id TEXT NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  description TEXT,
  status TEXT NOT NULL DEFAULT 'active',
  issue_prefix TEXT NOT NULL UNIQUE,
  issue_counter BIGINT NOT NULL DEFAULT 0,
  budget_monthly_cents BIGINT NOT NULL DEFAULT 0,
  spent_monthly_cents BIGINT NOT NULL DEFAULT 0,
  attachment_max_bytes BIGINT NOT NULL DEFAULT 10485760,
  require_board_approval INTEGER NOT NULL DEFAULT 0,
  brand_color TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

CREATE TABLE environments (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  description TEXT,
  driver TEXT NOT NULL DEFAULT 'local',
  status TEXT NOT NULL DEFAULT 'active',
  config TEXT NOT NULL DEFAULT '{}',
  metadata TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX environments_company_driver_idx ON environments (company_id, driver)
  WHERE driver = 'local';
CREATE INDEX environments_company_status_idx ON environments (company_id, status);
CREATE INDEX environments_company_updated_idx ON environments (company_id, updated_at);

-- What exists in the world for leases. `has_world` is 0 while nothing outside the database was ever
-- intended for it. `config` is what the provider gets, and nothing else. `owner_instance` is the
-- daemon process that last worked on it: after a restart, what an older instance left half done is
-- nobody's and can be taken up at once. `request_key` keeps two acquires with one idempotency key from
-- both opening a place.
CREATE TABLE places (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL,
  environment_id TEXT NOT NULL,
  driver TEXT NOT NULL,
  provider TEXT,
  provider_lease_id TEXT,
  config TEXT NOT NULL DEFAULT '{}',
  policy TEXT NOT NULL DEFAULT 'ephemeral',
  state TEXT NOT NULL,
  epoch BIGINT NOT NULL DEFAULT 1,
  has_world INTEGER NOT NULL DEFAULT 0,
  holder_run_id TEXT,
  request_key TEXT,
  owner_node TEXT NOT NULL,
  owner_boot TEXT NOT NULL,
  owner_instance TEXT NOT NULL,
  deadline_at BIGINT,
  attempts INTEGER NOT NULL DEFAULT 0,
  next_attempt_at BIGINT,
  note TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX places_living_idx ON places (state, environment_id) WHERE state <> 'gone';
CREATE UNIQUE INDEX places_request_idx ON places (environment_id, request_key)
  WHERE state = 'intended' AND request_key IS NOT NULL;

CREATE TABLE environment_leases (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  environment_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
  place_id TEXT NOT NULL,
  execution_workspace_id TEXT,
  issue_id TEXT,
  heartbeat_run_id TEXT,
  status TEXT NOT NULL DEFAULT 'active',
  lease_policy TEXT NOT NULL DEFAULT 'ephemeral',
  provider TEXT,
  provider_lease_id TEXT,
  acquired_at BIGINT NOT NULL,
  last_used_at BIGINT NOT NULL,
  expires_at BIGINT,
  released_at BIGINT,
  failure_reason TEXT,
  cleanup_status TEXT,
  metadata TEXT,
  idempotency_key TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX environment_leases_used_idx ON environment_leases (environment_id, last_used_at);
CREATE INDEX environment_leases_living_idx ON environment_leases (environment_id, place_id)
  WHERE status = 'active' OR status = 'retained';
CREATE INDEX environment_leases_place_idx ON environment_leases (place_id)
  WHERE status = 'active' OR status = 'retained';
CREATE INDEX environment_leases_expiry_idx ON environment_leases (expires_at)
  WHERE status = 'active' AND expires_at IS NOT NULL;
CREATE INDEX environment_leases_cleanup_idx ON environment_leases (place_id)
  WHERE cleanup_status = 'pending' OR cleanup_status = 'failed';
CREATE INDEX environment_leases_run_idx ON environment_leases (heartbeat_run_id)
  WHERE heartbeat_run_id IS NOT NULL;
CREATE UNIQUE INDEX environment_leases_key_idx ON environment_leases (environment_id, idempotency_key)
  WHERE idempotency_key IS NOT NULL;

CREATE TABLE agents (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id),
  name TEXT NOT NULL,
  url_key TEXT NOT NULL,
  role TEXT NOT NULL DEFAULT 'general',
  title TEXT,
  icon TEXT,
  status TEXT NOT NULL DEFAULT 'idle',
  reports_to TEXT,
  capabilities TEXT,
  adapter_type TEXT NOT NULL DEFAULT 'process',
  adapter_config TEXT NOT NULL DEFAULT '{}',
  runtime_config TEXT NOT NULL DEFAULT '{}',
  permissions TEXT NOT NULL DEFAULT '{}',
  default_environment_id TEXT REFERENCES environments (id) ON DELETE SET NULL,
  budget_monthly_cents BIGINT NOT NULL DEFAULT 0,
  spent_monthly_cents BIGINT NOT NULL DEFAULT 0,
  pause_reason TEXT,
  paused_at BIGINT,
  last_heartbeat_at BIGINT,
  metadata TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX agents_company_idx ON agents (company_id, default_environment_id);
CREATE INDEX agents_environment_idx ON agents (default_environment_id)
  WHERE default_environment_id IS NOT NULL;

CREATE TABLE projects (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'active',
  env TEXT,
  execution_workspace_policy TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX projects_company_idx ON projects (company_id);

CREATE TABLE issues (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  project_id TEXT REFERENCES projects (id) ON DELETE SET NULL,
  identifier TEXT NOT NULL UNIQUE,
  title TEXT NOT NULL,
  description TEXT,
  status TEXT NOT NULL DEFAULT 'backlog',
  execution_workspace_id TEXT,
  execution_workspace_preference TEXT,
  execution_workspace_settings TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX issues_company_idx ON issues (company_id, status);

CREATE TABLE execution_workspaces (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
  project_workspace_id TEXT,
  source_issue_id TEXT REFERENCES issues (id) ON DELETE SET NULL,
  mode TEXT NOT NULL,
  strategy_type TEXT NOT NULL,
  name TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'active',
  cwd TEXT,
  repo_url TEXT,
  base_ref TEXT,
  branch_name TEXT,
  provider_ref TEXT,
  cleanup_reason TEXT,
  provider_type TEXT NOT NULL DEFAULT 'local_fs',
  derived_from_execution_workspace_id TEXT REFERENCES execution_workspaces (id) ON DELETE SET NULL,
  last_used_at BIGINT NOT NULL,
  opened_at BIGINT NOT NULL,
  closed_at BIGINT,
  cleanup_eligible_at BIGINT,
  metadata TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX execution_workspaces_company_idx ON execution_workspaces (company_id, status);

CREATE TABLE heartbeat_runs (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id),
  agent_id TEXT NOT NULL REFERENCES agents (id),
  invocation_source TEXT NOT NULL DEFAULT 'on_demand',
  trigger_detail TEXT,
  status TEXT NOT NULL DEFAULT 'queued',
  started_at BIGINT,
  finished_at BIGINT,
  error TEXT,
  error_code TEXT,
  signal TEXT,
  exit_code INTEGER,
  result_json TEXT,
  context_snapshot TEXT,
  usage_json TEXT,
  process_pid INTEGER,
  process_group_id INTEGER,
  process_started_at BIGINT,
  last_output_at BIGINT,
  last_output_seq BIGINT NOT NULL DEFAULT 0,
  retry_of_run_id TEXT REFERENCES heartbeat_runs (id) ON DELETE SET NULL,
  process_loss_retry_count INTEGER NOT NULL DEFAULT 0,
  wakeup_request_id TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX heartbeat_runs_company_idx ON heartbeat_runs (company_id, created_at);
CREATE INDEX heartbeat_runs_agent_idx ON heartbeat_runs (agent_id, status);

CREATE TABLE plugins (
  id TEXT NOT NULL PRIMARY KEY,
  plugin_key TEXT NOT NULL UNIQUE,
  package_name TEXT,
  version TEXT,
  api_version INTEGER NOT NULL DEFAULT 1,
  categories TEXT NOT NULL DEFAULT '[]',
  manifest_json TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'installed',
  install_order INTEGER,
  package_path TEXT,
  last_error TEXT,
  installed_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

CREATE TABLE instance_settings (
  singleton_key TEXT NOT NULL PRIMARY KEY,
  general TEXT NOT NULL DEFAULT '{}',
  experimental TEXT NOT NULL DEFAULT '{}',
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

CREATE TABLE activity_log (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  actor_type TEXT NOT NULL DEFAULT 'system',
  actor_id TEXT NOT NULL,
  action TEXT NOT NULL,
  entity_type TEXT NOT NULL,
  entity_id TEXT NOT NULL,
  agent_id TEXT,
  run_id TEXT,
  details TEXT,
  created_at BIGINT NOT NULL
);
CREATE INDEX activity_log_company_idx ON activity_log (company_id, created_at);
CREATE INDEX activity_log_entity_idx ON activity_log (entity_type, entity_id);

-- Identity. Tokens are stored as SHA-256 digests only.
CREATE TABLE users (
  id TEXT NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  email TEXT,
  is_instance_admin INTEGER NOT NULL DEFAULT 0,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);

CREATE TABLE company_memberships (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  principal_type TEXT NOT NULL,
  principal_id TEXT NOT NULL,
  membership_role TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'active',
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (company_id, principal_type, principal_id)
);
CREATE INDEX company_memberships_principal_idx ON company_memberships (principal_type, principal_id);

CREATE TABLE permission_grants (
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  principal_type TEXT NOT NULL,
  principal_id TEXT NOT NULL,
  permission_key TEXT NOT NULL,
  scope TEXT,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (company_id, principal_type, principal_id, permission_key)
);

CREATE TABLE board_api_keys (
  id TEXT NOT NULL PRIMARY KEY,
  user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  token_sha256 TEXT NOT NULL UNIQUE,
  last_used_at BIGINT,
  expires_at BIGINT,
  revoked_at BIGINT,
  created_at BIGINT NOT NULL
);

CREATE TABLE agent_api_keys (
  id TEXT NOT NULL PRIMARY KEY,
  agent_id TEXT NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  token_sha256 TEXT NOT NULL UNIQUE,
  last_used_at BIGINT,
  revoked_at BIGINT,
  created_at BIGINT NOT NULL
);
CREATE INDEX agent_api_keys_agent_idx ON agent_api_keys (agent_id);

CREATE TABLE cli_auth_challenges (
  id TEXT NOT NULL PRIMARY KEY,
  secret_sha256 TEXT NOT NULL,
  board_token_sha256 TEXT NOT NULL,
  command TEXT NOT NULL,
  client_name TEXT,
  requested_access TEXT NOT NULL DEFAULT 'board',
  requested_company_id TEXT,
  board_api_key_id TEXT,
  approved_by_user_id TEXT,
  approved_at BIGINT,
  cancelled_at BIGINT,
  expires_at BIGINT NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE INDEX cli_auth_challenges_expiry_idx ON cli_auth_challenges (expires_at);

-- Secrets. Unique over live and deleted rows alike; removal renames.
CREATE TABLE company_secret_provider_configs (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  provider TEXT NOT NULL,
  display_name TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'ready',
  is_default INTEGER NOT NULL DEFAULT 0,
  config TEXT NOT NULL DEFAULT '{}',
  health_status TEXT,
  health_checked_at BIGINT,
  health_message TEXT,
  health_details TEXT,
  disabled_at BIGINT,
  created_by_agent_id TEXT REFERENCES agents (id) ON DELETE SET NULL,
  created_by_user_id TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX company_secret_provider_configs_default_idx
  ON company_secret_provider_configs (company_id, provider) WHERE is_default = 1;

CREATE TABLE company_secrets (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id),
  key TEXT NOT NULL,
  name TEXT NOT NULL,
  provider TEXT NOT NULL DEFAULT 'local_encrypted',
  status TEXT NOT NULL DEFAULT 'active',
  managed_mode TEXT NOT NULL DEFAULT 'paperclip_managed',
  external_ref TEXT,
  provider_config_id TEXT REFERENCES company_secret_provider_configs (id) ON DELETE SET NULL,
  provider_metadata TEXT,
  latest_version INTEGER NOT NULL DEFAULT 1,
  description TEXT,
  last_resolved_at BIGINT,
  last_rotated_at BIGINT,
  deleted_at BIGINT,
  created_by_agent_id TEXT REFERENCES agents (id) ON DELETE SET NULL,
  created_by_user_id TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (company_id, name),
  UNIQUE (company_id, key)
);

CREATE TABLE company_secret_versions (
  id TEXT NOT NULL PRIMARY KEY,
  secret_id TEXT NOT NULL REFERENCES company_secrets (id) ON DELETE CASCADE,
  version INTEGER NOT NULL,
  material TEXT NOT NULL,
  value_sha256 TEXT NOT NULL,
  provider_version_ref TEXT,
  status TEXT NOT NULL DEFAULT 'current',
  fingerprint_sha256 TEXT NOT NULL,
  rotation_job_id TEXT,
  created_by_agent_id TEXT,
  created_by_user_id TEXT,
  revoked_at BIGINT,
  created_at BIGINT NOT NULL,
  UNIQUE (secret_id, version)
);

CREATE TABLE company_secret_bindings (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id),
  secret_id TEXT NOT NULL REFERENCES company_secrets (id) ON DELETE CASCADE,
  target_type TEXT NOT NULL,
  target_id TEXT NOT NULL,
  config_path TEXT NOT NULL,
  version_selector TEXT NOT NULL DEFAULT 'latest',
  required INTEGER NOT NULL DEFAULT 1,
  label TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (company_id, target_type, target_id, config_path)
);
CREATE INDEX company_secret_bindings_secret_idx ON company_secret_bindings (secret_id);

-- Access events outlive their secret, so there is no foreign key to it.
CREATE TABLE secret_access_events (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT NOT NULL REFERENCES companies (id) ON DELETE CASCADE,
  secret_id TEXT NOT NULL,
  version INTEGER,
  provider TEXT NOT NULL,
  actor_type TEXT NOT NULL,
  actor_id TEXT,
  consumer_type TEXT NOT NULL,
  consumer_id TEXT NOT NULL,
  config_path TEXT,
  issue_id TEXT,
  heartbeat_run_id TEXT,
  plugin_id TEXT,
  outcome TEXT NOT NULL,
  error_code TEXT,
  created_at BIGINT NOT NULL
);
CREATE INDEX secret_access_events_secret_idx ON secret_access_events (secret_id, created_at);
