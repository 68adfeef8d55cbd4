# bash completion for berth(1). The words come from the program's own help, so they never go stale.

_berth_offer() {
        mapfile -t COMPREPLY < <(compgen -W "$1" -- "${COMP_WORDS[COMP_CWORD]}")
}

_berth() {
        local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
        local -a path=()
        local i word help

        COMPREPLY=()
        case $previous in
        --data | --workspace | --cwd) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
        --driver) _berth_offer 'local ssh sandbox plugin'; return ;;
        --mode) _berth_offer 'local_trusted authenticated'; return ;;
        --log-level) _berth_offer 'debug info warn error'; return ;;
        --log-format) _berth_offer 'text json'; return ;;
        --role) _berth_offer 'owner admin operator viewer'; return ;;
        --api-url | --api-key | --company | -C) return ;;
        esac

        for ((i = 1; i < COMP_CWORD && ${#path[@]} < 2; i++)); do
                word=${COMP_WORDS[i]}
                case $word in
                --api-url | --api-key | --company | -C | --data) ((i++)) ;;
                -*) ;;
                help) ;;
                *) path+=("$word") ;;
                esac
        done
        # The second word may be an argument; then the first alone is the command.
        help=$(berth help "${path[@]}" 2>/dev/null) ||
                help=$(berth help "${path[0]}" 2>/dev/null) || return
        if [[ $current == -* ]]; then
                _berth_offer "$(sed -nE 's/^  (-., |    )(--[a-z-]+).*/\2/p' <<<"$help")"
        else
                _berth_offer "$(sed -nE '/^Commands:/,/^$/s/^  ([a-z]+) .*/\1/p' <<<"$help")"
        fi
}

complete -o bashdefault -o default -F _berth berth
