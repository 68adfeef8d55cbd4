/* The table of allowed moves between states of a place. */
#include "core/places/place_state.h"

const struct transition place_transitions[] = {
        { NULL, PLACE_INTENDED, "the provider is about to be asked" },
        { NULL, PLACE_HELD, "nothing outside the database is needed for it" },
        { PLACE_INTENDED, PLACE_HELD, "the provider opened it and a lease names it" },
        { PLACE_INTENDED, PLACE_READY, "opened in advance; nobody uses it yet" },
        { PLACE_INTENDED, PLACE_CLOSING, "opened, but no lease came of it" },
        { PLACE_INTENDED, PLACE_GONE, "the provider said no, or was never asked" },
        { PLACE_INTENDED, PLACE_UNCERTAIN, "the provider's answer was lost" },
        { PLACE_READY, PLACE_HELD, "claimed by a lease" },
        { PLACE_READY, PLACE_CLOSING, "idle too long, or no longer wanted" },
        { PLACE_HELD, PLACE_HELD, "a lease is being given or taken back" },
        { PLACE_HELD, PLACE_READY, "its last lease ended and it may be used again" },
        { PLACE_HELD, PLACE_CLOSING, "its last lease ended" },
        { PLACE_CLOSING, PLACE_CLOSING, "another attempt, by whoever took it" },
        { PLACE_CLOSING, PLACE_GONE, "the provider gave it up" },
        { PLACE_UNCERTAIN, PLACE_CLOSING, "it was found, or an operator wants it closed" },
        { PLACE_UNCERTAIN, PLACE_GONE, "it is not there, or an operator wrote it off" },
        { NULL, NULL, NULL },
};

int place_transition_check(const char *from, const char *to, struct err *err)
{
        if (transition_exists(place_transitions, from, to))
                return 0;
        return err_set(err, ERR_INTERNAL, "a place cannot go from %s to %s",
                       from ? from : "nothing", to);
}
