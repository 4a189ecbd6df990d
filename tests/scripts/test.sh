#!/bin/bash
# Everything that must hold before a change lands, one step after the other, and a summary at the end.
# A failing step does not hide the later ones. `test.sh STEP...` runs only those; logs are in target/test.
set -u
cd "$(dirname "$0")/../.." || exit 1
logs=target/test
mkdir -p "$logs"
only=" $* "
summary=()
failed=0
started=$SECONDS

# step NAME COMMAND...: runs it, keeps its log, adds a line to the summary.
step() {
    local name=$1 from=$SECONDS verdict=ok
    shift
    [[ $only == "  " || $only == *" $name "* ]] || return 0
    printf '\n==> %s: %s\n' "$name" "$*"
    # Into a file that is followed until the command ends: a pipe would stay open as long as any process that the command left
    # behind, and CI would wait for that process until its time is over.
    : >"$logs/$name.log"
    "$@" >>"$logs/$name.log" 2>&1 &
    local command=$!
    tail --pid="$command" --lines=+1 --follow "$logs/$name.log"
    if ! wait "$command"; then
        verdict=FAILED
        failed=1
    fi
    summary+=("$(printf '%-15s %-7s %4d s  %s' "$name" "$verdict" $((SECONDS - from)) "$(tests_in "$logs/$name.log")")")
}

# How many tests a log of `cargo test` tells of.
tests_in() {
    awk '/^test result:/ { passed += $4; failed += $6; ignored += $8 }
         END { if (passed + failed + ignored) printf "%d passed, %d failed, %d ignored", passed, failed, ignored }' "$1"
}

# Seconds of all fuzz targets together. The kept inputs (`__fuzz__`) and the seeds are tried before the new ones, and `make soak`
# gives each target ten minutes.
fuzz_seconds=240

# fuzz: runs each fuzz target for its share of the time, as many side by side as there are processors.
fuzz() {
    local targets
    targets=$(cargo test --workspace --test fuzz --locked -- --list 2>/dev/null | grep -c ': test$')
    [ "$targets" -gt 0 ] || { echo "there are no fuzz targets"; return 1; }
    BOLERO_RANDOM_TEST_TIME_MS=$((fuzz_seconds * 1000 / targets)) cargo test --workspace --test fuzz --locked --no-fail-fast
}

# slowest: the ten tests that took longest, by the logs of this run.
slowest() {
    printf '\nslowest tests\n'
    sed -n 's/^test \(.*\) \.\.\. [a-zA-Z]* <\([0-9.]*\)s>$/\2 s  \1/p' "$logs"/{unit,e2e,lab,unitcaps}.log 2>/dev/null | sort -rn | head -n 10
}

# Test binaries say how long each test took. The option is not stable, so the variable that permits it is set for them
# alone: in the environment of cargo it would make libraries build anew.
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
export "CARGO_TARGET_${host}_RUNNER=env RUSTC_BOOTSTRAP=1"
timed=(-- -Zunstable-options --report-time)
# Most of the time of an end-to-end test is waiting: for the kernel, for a period, for another process.
e2e_threads=(--test-threads "$(($(nproc) * 2))")
# Modules of the end-to-end tests that touch the kernel, files of the system and other programs. They run with the
# capabilities of the packaged unit alone: what needs more rights than the unit has was never promised.
unit_modules=(boot_config:: bootz:: bootz_dhcp:: credentialz:: drift:: factory:: gnoi:: lease:: os:: ping_traceroute::
    process:: routes:: set:: subscribe::)

# shellcheck source=tests/scripts/lints.sh
. tests/scripts/lints.sh

step fmt cargo fmt --all --check
# With all targets: for the binaries alone, the libraries would be built anew with less features than tests ask for.
step build cargo build --workspace --all-targets --locked
step deny tests/scripts/deny.sh
# Everything but the end-to-end tests and the lab. Always the whole workspace: parts of it would build the libraries anew, with
# other features.
step unit cargo test --workspace --locked --no-fail-fast --lib --bins --test '[!el]*' --test 'e[!2]*' \
    --test 'l[!a]*' --test 'la[!b]*' "${timed[@]}"
# `unit` has run each target for a second.
step fuzz fuzz
step trace "${CARGO_TARGET_DIR:-target}/debug/trace" --brief
step clients tests/scripts/clients.sh gnmic gnmi_cli grpcurl python bootz tree ygnmi handler cargo_deb mdbook
step e2e tests/scripts/private.sh cargo test --workspace --test e2e --locked "${timed[@]}" "${e2e_threads[@]}" \
    "${unit_modules[@]/#/--skip=}"
# On a kernel of its own.
step lab tests/scripts/private.sh cargo test --workspace --test lab --locked "${timed[@]}" --skip=systemd::
# The package on a box of the lab, with systemd as its first process. It makes a root folder, which needs root.
step systemd_lab cargo test --workspace --test lab --locked "${timed[@]}" systemd::
# The package on boxes in containers, with systemd as their first process.
step service_manager target/clients/venv/bin/python tests/scripts/service_manager.py \
    "${CARGO_TARGET_DIR:-target}/debug/holdfast" target/clients
# The image, and the topology of two boxes that the guide has.
step container target/clients/venv/bin/python tests/scripts/container.py "${CARGO_TARGET_DIR:-target}/debug/holdfast" target/clients/gnmic
# The commands of the guide's recipes.
step recipes tests/scripts/private.sh python3 tests/scripts/recipes.py "${CARGO_TARGET_DIR:-target}/debug/holdfast" \
    target/clients/gnmic
# With the capabilities of the packaged unit and its drop-ins, and no others.
step unitcaps tests/scripts/private.sh env HOLDFAST_E2E_UNDER_UNIT=1 cargo test --workspace --test e2e --locked \
    "${timed[@]}" "${e2e_threads[@]}" "${unit_modules[@]}"
# A few attempts of each kind. `make campaign` goes on for a quarter of an hour.
step campaign tests/scripts/private.sh "${CARGO_TARGET_DIR:-target}/debug/campaign" --short
# The Debian package of the binary of the step `build`.
step package tests/scripts/private.sh tests/scripts/package.sh
# The guide as a book; warnings are errors.
step book packaging/book/build.sh
# With the binaries of the step `build`: each row of the benchmark comes to its end. `make bench` measures.
step bench tests/scripts/private.sh "${CARGO_TARGET_DIR:-target}/debug/bench" --smoke

printf '\n%s\n' "step            result   time  tests"
printf '%s\n' "${summary[@]}"
slowest
if [ $failed = 0 ]; then verdict=passed; else verdict=FAILED; fi
echo "$verdict after $((SECONDS - started)) s"
exit $failed
