# bash completion for berth(1). The words come from the program's own help, so they never go stale.

_berth() {
        local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
        local -a path=()
        local i word help

        COMPREPLY=()
        case $previous in
        --data) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
        --driver) mapfile -t COMPREPLY < <(compgen -W 'local ssh sandbox plugin' -- "$current"); return ;;
        --mode) mapfile -t COMPREPLY < <(compgen -W 'local_trusted authenticated' -- "$current"); return ;;
        --log-level) mapfile -t COMPREPLY < <(compgen -W 'debug info warn error' -- "$current"); return ;;
        --log-format) mapfile -t COMPREPLY < <(compgen -W 'text json' -- "$current"); return ;;
        --role) mapfile -t COMPREPLY < <(compgen -W 'owner admin operator viewer' -- "$current"); return ;;
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
        help=$(berth help "${path[@]}" 2>/dev/null) || help=$(berth help "${path[0]}" 2>/dev/null) || return
        if [[ $current == -* ]]; then
                mapfile -t COMPREPLY < <(compgen -W "$(
                        sed -nE 's/^  (-., |    )(--[a-z-]+).*/\2/p' <<<"$help"
                )" -- "$current")
        else
                mapfile -t COMPREPLY < <(compgen -W "$(
                        sed -nE '/^Commands:/,/^$/s/^  ([a-z]+) .*/\1/p' <<<"$help"
                )" -- "$current")
        fi
}

complete -o bashdefault -o default -F _berth berth
