# fish completion for berth(1). The words come from the program's own help, so they never go stale.

function __berth_help
        set -l path
        set -l skip 0
        for word in (commandline -opc)[2..-1]
                if test $skip -eq 1
                        set skip 0
                        continue
                end
                switch $word
                        case --api-url --api-key --company -C --data
                                set skip 1
                        case '-*' help
                        case '*'
                                test (count $path) -lt 2; and set -a path $word
                end
        end
        # The second word may be an argument; then the first alone is the command.
        berth help $path 2>/dev/null; or berth help $path[1] 2>/dev/null
end

function __berth_commands
        __berth_help | sed -nE '/^Commands:/,/^$/s/^  ([a-z]+)  +(.*)/\1\t\2/p'
end

function __berth_options
        __berth_help | sed -nE 's/^  (-., |    )(--[a-z-]+)( [A-Z|@:=]+)?  +(.*)/\2\t\4/p'
end

complete -c berth -f -a '(__berth_commands)'
complete -c berth -f -n 'string match -q -- "-*" (commandline -ct)' -a '(__berth_options)'
complete -c berth -l data -x -a '(__fish_complete_directories)' -d 'data directory'
complete -c berth -l workspace -x -a '(__fish_complete_directories)'
complete -c berth -l cwd -x -a '(__fish_complete_directories)'
complete -c berth -l driver -x -a 'local ssh sandbox plugin'
complete -c berth -l mode -x -a 'local_trusted authenticated'
complete -c berth -l log-level -x -a 'debug info warn error'
complete -c berth -l log-format -x -a 'text json'
complete -c berth -l role -x -a 'owner admin operator viewer'
