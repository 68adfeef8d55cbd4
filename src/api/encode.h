/* Rows as the API shows them. One function per kind of object; absent values are null. */
#ifndef BERTH_API_ENCODE_H
#define BERTH_API_ENCODE_H

#include "codec/json.h"
#include "core/environment.h"
#include "core/lease.h"
#include "store/activity.h"
#include "store/agents.h"
#include "store/companies.h"

void encode_company(struct jw *w, const struct company *c);
void encode_environment(struct jw *w, const struct environment *e, bool redacted);
void encode_lease(struct jw *w, const struct lease *l);
/* {environment, lease, leaseContext} */
void encode_lease_record(struct jw *w, const struct lease_record *r);
/* Without `full` the configurations are blank. */
void encode_agent(struct jw *w, const struct agent *a, bool full);
void encode_activity(struct jw *w, const struct activity *a);

#endif
