# Completion of holdfast for bash: source <(holdfast completion bash)
_holdfast() {
    local IFS=$'\n' candidate
    COMPREPLY=()
    for candidate in $(holdfast complete --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null); do
        COMPREPLY+=("$(printf '%q' "$candidate")")
    done
}
complete -o default -F _holdfast holdfast
