/* Decides which steps of a run may follow each other. */
#include "core/runs/run_state.h"

const struct transition run_transitions[] = {
        { NULL, STEP_QUEUED, "a wake-up was accepted" },
        { STEP_QUEUED, STEP_PREPARING, "claimed by this daemon" },
        { STEP_QUEUED, STEP_DONE, "ended before it began" },
        { STEP_PREPARING, STEP_PREPARING, "more of the preparation is recorded, or it waits" },
        { STEP_PREPARING, STEP_EXECUTING, "its command is started, or its request is next" },
        { STEP_PREPARING, STEP_RELEASING, "it failed or was cancelled; no command ran" },
        { STEP_EXECUTING, STEP_EXECUTING, "its request is about to be sent" },
        { STEP_EXECUTING, STEP_PREPARING, "its command never began: prepared again" },
        { STEP_EXECUTING, STEP_FINISHING, "its command ended" },
        { STEP_EXECUTING, STEP_RELEASING, "its request was answered, or its command is lost" },
        { STEP_FINISHING, STEP_FINISHING, "more of its end is recorded" },
        { STEP_FINISHING, STEP_PREPARING, "its command never began: prepared again" },
        { STEP_FINISHING, STEP_EXECUTING, "started once more, without the session" },
        { STEP_FINISHING, STEP_RELEASING, "its outcome is recorded" },
        { STEP_RELEASING, STEP_DONE, "its leases are given up" },
        { NULL, NULL, NULL },
};

int run_transition_check(const char *from, const char *to, struct err *err)
{
        if (transition_exists(run_transitions, from, to))
                return 0;
        return err_set(err, ERR_INTERNAL, "a run cannot go from %s to %s", from ? from : "nothing",
                       to);
}
