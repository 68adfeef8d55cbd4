/* Runs as the API shows them; absent values are null. */
#pragma once

#include "codec/json.h"
#include "core/runs/run_view.h"

void encode_run(struct jw *w, const struct run *run);
/* With its agent and how long it has been silent. Without `full` as in lists: results and contexts
 * in short, no excerpts. */
void encode_run_view(struct jw *w, const struct run_view *view, bool full);
void encode_run_event(struct jw *w, const struct run_event *event);
void encode_run_decision(struct jw *w, const struct run_decision *decision);
