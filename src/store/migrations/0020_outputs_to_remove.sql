-- Output directories (output/<execution_id>) whose row is gone. The trigger records the intent in the transaction that
-- deletes the row, also where an environment or a company takes its leases and their executions along; the sweeper
-- removes the directory, and then this row.
CREATE TABLE outputs_to_remove (
  execution_id TEXT NOT NULL PRIMARY KEY,
  attempts BIGINT NOT NULL DEFAULT 0,
  note TEXT
);
CREATE TRIGGER executions_deleted AFTER DELETE ON executions BEGIN
  INSERT INTO outputs_to_remove (execution_id) VALUES (OLD.id) ON CONFLICT DO NOTHING;
END;
