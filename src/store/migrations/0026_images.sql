-- Images that sandboxes are made of: of a company, or of the instance (no company). `pulling` and `deleting` are
-- intents: whoever finds one of an earlier instance of the daemon finishes it. `repository` is the registry and the
-- name in it, '' for one that was not pulled.
CREATE TABLE images (
  id TEXT NOT NULL PRIMARY KEY,
  company_id TEXT REFERENCES companies (id),
  reference TEXT NOT NULL,
  repository TEXT NOT NULL,
  digest TEXT,
  state TEXT NOT NULL,
  config TEXT,
  bytes BIGINT NOT NULL DEFAULT 0,
  error TEXT,
  owner_instance TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  used_at BIGINT NOT NULL
);
CREATE INDEX images_company_idx ON images (company_id, created_at, id);
CREATE INDEX images_reference_idx ON images (reference);
CREATE INDEX images_used_idx ON images (used_at, id) WHERE state = 'ready';
CREATE INDEX images_open_idx ON images (state) WHERE state <> 'ready';

-- Unpacked layers, each a directory images/<id>. `making`: its bytes are fetched and unpacked; `cut`: that failed, and
-- what was fetched is kept for the next attempt. `blob` is the digest that the registry has it under.
CREATE TABLE image_layers (
  id TEXT NOT NULL PRIMARY KEY,
  diff_id TEXT NOT NULL,
  blob TEXT NOT NULL,
  state TEXT NOT NULL,
  bytes BIGINT NOT NULL DEFAULT 0,
  owner_instance TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX image_layers_diff_idx ON image_layers (diff_id);

-- Which layers an image has, the lowest first (0).
CREATE TABLE image_parts (
  image_id TEXT NOT NULL REFERENCES images (id),
  position BIGINT NOT NULL,
  layer_id TEXT NOT NULL REFERENCES image_layers (id),
  PRIMARY KEY (image_id, position)
);
CREATE INDEX image_parts_layer_idx ON image_parts (layer_id);

-- What a sandbox and a snapshot stand on, and the inner user that commands are, where it is not the agent.
ALTER TABLE sandboxes ADD COLUMN image_id TEXT;
ALTER TABLE sandboxes ADD COLUMN user_id BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN group_id BIGINT NOT NULL DEFAULT 0;
ALTER TABLE snapshots ADD COLUMN image_id TEXT;
CREATE INDEX sandboxes_image_idx ON sandboxes (image_id) WHERE image_id IS NOT NULL;
CREATE INDEX snapshots_image_idx ON snapshots (image_id) WHERE image_id IS NOT NULL;
