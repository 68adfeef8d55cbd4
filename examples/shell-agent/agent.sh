#!/bin/sh
# A whole agent in a page of shell: it reads its issue, changes a file of the workspace, says so, and closes the issue.
#
# It needs sh, sed, grep, and curl or bash: what a bare Debian has. README.md says how to run it.
set -eu

# api METHOD PATH [BODY]: print the answer; fail unless it is a good one. The key stays out of argv.
if command -v curl >/dev/null; then
	api() {
		printf 'header = "Authorization: Bearer %s"\n' "$PAPERCLIP_API_KEY" |
			curl -sS --fail-with-body --max-time 60 -K - -X "$1" -H 'Content-Type: application/json' \
				-H "X-Paperclip-Run-Id: $PAPERCLIP_RUN_ID" ${3+--data-binary "$3"} "$PAPERCLIP_API_URL/api$2"
	}
else
	# shellcheck disable=SC2016
	api() {
		LC_ALL=C bash -ec '
			at=${PAPERCLIP_API_URL#http://} at=${at%%/*} body=${3-}
			exec 3<>"/dev/tcp/${at%:*}/${at##*:}"
			printf "%s /api%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nX-Paperclip-Run-Id: %s\r\n" \
				"$1" "$2" "$at" "$PAPERCLIP_API_KEY" "$PAPERCLIP_RUN_ID" >&3
			[ -z "$body" ] || printf "Content-Type: application/json\r\nContent-Length: %d\r\n" ${#body} >&3
			printf "Connection: close\r\n\r\n%s" "$body" >&3
			read -r -u 3 _ status _
			while read -r -u 3 line && [ "${line%$'"'\r'"'}" ]; do :; done
			cat <&3
			case $status in 2*) ;; *) echo "HTTP $status" >&2; exit 1 ;; esac' api "$@"
	}
fi

# member NAME: the first string member of that name in the JSON on standard input, as it is written there.
member() {
	grep -o "\"$1\":\"\([^\"\\\\]\|\\\\.\)*\"" | head -n 1 | sed -e "s/^\"$1\":\"//" -e 's/"$//'
}

# A wake-up for an issue names it. Otherwise the first one of the inbox is taken.
issue=${PAPERCLIP_TASK_ID:-}
if [ -z "$issue" ]; then
	inbox=$(api GET /agents/me/inbox-lite)
	issue=$(printf '%s' "$inbox" | member id)
fi
if [ -z "$issue" ]; then
	echo "nothing to do"
	exit 0
fi

# Whoever has it already gets it again; of two that want it, one does.
api POST "/issues/$issue/checkout" \
	"{\"agentId\":\"$PAPERCLIP_AGENT_ID\",\"expectedStatuses\":[\"todo\",\"backlog\",\"blocked\",\"in_progress\"]}" >/dev/null

found=$(api GET "/issues/$issue")
title=$(printf '%s' "$found" | member title)
name=$(printf '%s' "$found" | member identifier)
echo "working on $name"
[ -z "${AGENT_PAUSE:-}" ] || sleep "$AGENT_PAUSE" # for those who want to watch

# The work itself: one more line in a file.
printf -- '- %s: %s\n' "$name" "$(printf '%s' "$title" | sed 's/\\\(["\\/]\)/\1/g')" >>DONE.md

api POST "/issues/$issue/comments" "{\"body\":\"Noted \`$title\` in DONE.md.\"}" >/dev/null
api PATCH "/issues/$issue" '{"status":"done"}' >/dev/null
echo "closed $name"
