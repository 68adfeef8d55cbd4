-- Indexes by which every list finds its first rows without reading the rest (test/unit/query-plans checks the
-- plans). Those of open runs cover only what is not over, so their size follows the work at hand.
DROP INDEX heartbeat_runs_company_idx;
DROP INDEX heartbeat_runs_agent_idx;
DROP INDEX heartbeat_runs_issue_idx;
DROP INDEX heartbeat_runs_open_idx;
DROP INDEX heartbeat_runs_waiting_idx;
CREATE INDEX heartbeat_runs_company_idx ON heartbeat_runs (company_id, created_at, id);
CREATE INDEX heartbeat_runs_agent_idx ON heartbeat_runs (agent_id, created_at, id);
CREATE INDEX heartbeat_runs_issue_idx ON heartbeat_runs (issue_id, created_at, id)
  WHERE issue_id IS NOT NULL;
CREATE INDEX heartbeat_runs_open_company_idx ON heartbeat_runs (company_id, created_at, id)
  WHERE step <> 'done';
CREATE INDEX heartbeat_runs_open_agent_idx ON heartbeat_runs (agent_id, created_at, id)
  WHERE step <> 'done';
CREATE INDEX heartbeat_runs_open_issue_idx ON heartbeat_runs (issue_id, created_at, id)
  WHERE step <> 'done';

CREATE INDEX environment_leases_ended_badly_idx ON environment_leases (environment_id, last_used_at)
  WHERE status <> 'active' AND status <> 'retained' AND status <> 'released';
CREATE INDEX environment_leases_last_idx ON environment_leases (place_id, created_at);
CREATE INDEX environment_leases_workspace_idx ON environment_leases (execution_workspace_id)
  WHERE execution_workspace_id IS NOT NULL;

DROP INDEX activity_log_entity_idx;
CREATE INDEX activity_log_entity_idx ON activity_log (entity_id, created_at);
CREATE INDEX activity_log_type_idx ON activity_log (company_id, entity_type, created_at);
CREATE INDEX activity_log_agent_idx ON activity_log (agent_id, created_at) WHERE agent_id IS NOT NULL;

CREATE INDEX issues_workspace_idx ON issues (execution_workspace_id)
  WHERE execution_workspace_id IS NOT NULL;
CREATE INDEX issue_comments_author_idx ON issue_comments (author_agent_id, issue_id)
  WHERE author_agent_id IS NOT NULL;
