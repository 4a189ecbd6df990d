# Completion of holdfast for fish: holdfast completion fish | source
function __holdfast_candidates
    set -l words (commandline -opc) (commandline -ct | string unescape)
    test (count (commandline -ct)) -eq 0; and set -a words ""
    holdfast complete -- $words 2>/dev/null
end
complete -c holdfast -n 'count (__holdfast_candidates) >/dev/null' -f -a '(__holdfast_candidates)'
