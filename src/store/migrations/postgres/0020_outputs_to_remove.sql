-- ../0020_outputs_to_remove.sql for PostgreSQL, whose triggers call a function.
CREATE TABLE outputs_to_remove (
  execution_id TEXT NOT NULL PRIMARY KEY,
  attempts BIGINT NOT NULL DEFAULT 0,
  note TEXT
);
CREATE FUNCTION executions_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO outputs_to_remove (execution_id) VALUES (OLD.id) ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;
CREATE TRIGGER executions_deleted AFTER DELETE ON executions
  FOR EACH ROW EXECUTE FUNCTION executions_deleted();
