#compdef holdfast
# Completion of holdfast for zsh: source <(holdfast completion zsh), after compinit
_holdfast() {
    local -a candidates
    candidates=("${(@f)$(holdfast complete -- "${(@Q)words[1,CURRENT]}" 2>/dev/null)}")
    candidates=(${candidates:#})
    if (( ${#candidates} )); then
        compadd -- "${candidates[@]}"
    else
        _files
    fi
}
if [[ "$funcstack[1]" == _holdfast ]]; then
    _holdfast "$@"
else
    compdef _holdfast holdfast
fi
