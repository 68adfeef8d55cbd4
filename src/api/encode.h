/* Rows as the API shows them. One function per kind of object; absent values are null. */
#ifndef BERTH_API_ENCODE_H
#define BERTH_API_ENCODE_H

#include "codec/json.h"
#include "core/environment.h"
#include "core/lease.h"
#include "core/secret.h"
#include "store/activity.h"
#include "store/agents.h"
#include "store/companies.h"
#include "store/vault_configs.h"

void encode_company(struct jw *w, const struct company *c);
void encode_environment(struct jw *w, const struct environment *e, bool redacted);
void encode_lease(struct jw *w, const struct lease *l);
/* {environment, lease, leaseContext} */
void encode_lease_record(struct jw *w, const struct lease_record *r);
/* Without `full` the configurations are blank. */
void encode_agent(struct jw *w, const struct agent *a, bool full);
void encode_activity(struct jw *w, const struct activity *a);
void encode_secret(struct jw *w, const struct secret *s);
void encode_secret_version(struct jw *w, const struct secret_version *v);
void encode_secret_usage(struct jw *w, const struct secret_usage *u);
void encode_secret_event(struct jw *w, const struct secret_event *e);
void encode_vault(struct jw *w, const struct vault_row *v);

#endif
