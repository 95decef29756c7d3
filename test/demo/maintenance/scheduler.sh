#!/usr/bin/env bash
#
# test/demo/maintenance/scheduler.sh NAME
#
# A scheduler in bash, with psql. It waits in line for the lease "maintenance", and does
# what is due while it leads. It is one process with one connection and one grant: when
# it has lost any of them it ends, and whoever keeps it running starts another one.
# "sweep" has all its effects in the database, "report" has some outside. SIGTERM: finish
# what is being done, release, end.
#
# The connection is libpq's environment's. ARCHIVE is how to connect to the archive,
# which compares epochs; REPORTS is a plain file, which compares nothing. What happens is
# printed, a line each.

set -euo pipefail

lease=maintenance
name=$1

# An incarnation of a process, so that a restarted one is another.
holder=$name/$$/$EPOCHSECONDS

trap 'ended=yes' TERM
trap '' PIPE   # what became of psql is learned by reading from it

say() {
    echo "$name $*"
}

# lost ends the process, and with its connection whatever transaction is open.
lost() {
    say "$*"
    exit 1
}

# read_clock sets $now, in hundredths of a second, from a clock that nobody sets, and
# that runs while the machine sleeps. It may be one more already.
read_clock() {
    read -r now _ </proc/uptime
    now=$((10#${now/./}))
}

#----
# A connection
#----

# Errors come with SQLSTATEs, and one that is lost need not be waited for.
export PGOPTIONS='-c client_min_messages=error' PGCONNECT_TIMEOUT=2
coproc PSQL { exec psql -XqAt -F ' ' -v VERBOSITY=verbose 2>&1; }
exec {answers}<&"${PSQL[0]}" {statements}>&"${PSQL[1]}"
patience=0   # the instant beyond which no answer is awaited

# ask sends a statement, and waits for its $answer.
ask() {
    local line left

    answer=""
    printf '%s;\n\\echo end of answer\n' "$1" 2>/dev/null 1>&"$statements" || true
    while true; do
        read_clock
        left=$((patience - now))
        ((left > 0)) || lost "has no answer in time, and ends"
        printf -v left '%d.%02d' $((left / 100)) $((left % 100))
        if IFS= read -r -t "$left" line <&"$answers"; then
            [[ $line != "end of answer" ]] || break
            answer+=${answer:+$'\n'}$line
        elif (($? <= 128)); then
            break   # psql has ended
        fi
    done
    if [[ $answer =~ (ERROR|FATAL):\ \ ([0-9A-Z]{5}):\ ([^$'\n']*) ]]; then
        lost "is refused with SQLSTATE ${BASH_REMATCH[2]}: ${BASH_REMATCH[3]}"
    elif [[ ${line-} != "end of answer" ]]; then
        lost "has lost its connection, and ends"
    fi
}

#----
# Leading
#----

# compete returns when the lease is granted, with its $epoch.
compete() {
    local turn=2 since outcome

    read_clock
    since=$now
    epoch=""
    until [[ -n $epoch ]]; do
        [[ -z ${ended-} ]] || exit 0
        read_clock
        patience=$((now + 100 * 2 * turn))
        ask "CALL lease.await('$lease', '$holder', timeout => '$turn s', waited => '$((now - since))0 ms')"
        read -r _ _ outcome epoch _ <<<"$answer"
        [[ $outcome == granted ]] || epoch=""
    done
    read_clock
    patience=$((now + 100 * turn))
    renew
    say "leads under epoch $epoch"
}

# renew renews the grant. From when the request was sent, not from when it was answered,
# it can be relied on for as long as the answer says.
renew() {
    local sent outcome remaining

    read_clock
    sent=$now
    ask "SELECT outcome, floor(extract(epoch FROM remaining) * 100) FROM lease.renew('$lease', $epoch)"
    read -r outcome remaining <<<"$answer"
    [[ $outcome == renewed ]] || lost "cannot renew epoch $epoch: $outcome"
    deadline=$((sent + remaining))
    patience=$deadline
    renewal=$((sent + remaining / 3))
}

# renew_in_time renews when a third of the time has passed.
renew_in_time() {
    read_clock
    ((now < renewal)) || renew
}

# must_lead is to be called before whatever no fence protects.
must_lead() {
    read_clock
    ((now + 1 < deadline)) || lost "has let its time under epoch $epoch pass, and ends"
}

# lead does what is due.
lead() {
    local due task due_at

    while [[ -z ${ended-} ]]; do
        ask "SELECT task, due_at FROM lease.due() WHERE ready AND lease = '$lease'"
        due=$answer
        if [[ -z $due ]]; then
            sleep 0.1
            renew_in_time
            continue
        fi
        while [[ -z ${ended-} ]] && read -r task due_at; do
            renew_in_time
            "do_$task" "$due_at"
        done <<<"$due"
    done
    ask "SELECT lease.release('$lease', $epoch)"
    say "releases epoch $epoch"
}

#----
# Working
#----

# do_sweep begins, works and finishes in one transaction: all of that happens once.
do_sweep() {
    local due_at=$1 outcome attempt

    ask "BEGIN"
    ask "SELECT outcome, attempt FROM lease.begin_occurrence('sweep', '$due_at', $epoch)"
    read -r outcome attempt <<<"$answer"
    if [[ $outcome == started ]]; then
        sleep 0.1   # sweeps
        ask "INSERT INTO ledger VALUES ('sweep', '$due_at', $epoch, '$name')"
        ask "SELECT lease.finish_occurrence('sweep', '$due_at', $attempt, $epoch)"
    fi
    ask "COMMIT"
}

# do_report acts outside of the database, too.
do_report() {
    local due_at=$1 outcome attempt token key standing settled

    # First for the record: whoever comes after this one has to know what may have
    # happened outside, and that somebody said it can be borne.
    ask "BEGIN"
    ask "SELECT outcome, attempt FROM lease.begin_occurrence('report', '$due_at', $epoch)"
    read -r outcome attempt <<<"$answer"
    if [[ $outcome == started ]]; then
        ask "SELECT token, key FROM lease.begin_action('print', $epoch, 'report', '$due_at',
                 acknowledge => 'a report that is printed twice is thrown away')"
        read -r token key <<<"$answer"
        ask "SELECT lease.begin_action('archive', $epoch, 'report', '$due_at')"
    fi
    ask "COMMIT"
    [[ $outcome == started ]] || return 0

    # This check can come as close to the effect as one likes: a process may be stopped
    # in between.
    must_lead
    sleep 0.3   # what it takes to get there
    echo "$key $token $name" >>"$REPORTS"

    # This provider compares the token itself.
    sleep 0.1
    answer=$(psql -XqAt -v VERBOSITY=verbose -d "$ARCHIVE" -c "SELECT put('$key', $token, '$name')" 2>&1) || true
    if [[ $answer =~ (ERROR|FATAL):\ \ ([0-9A-Z]{5}):\ ([^$'\n']*) ]]; then
        lost "is refused with SQLSTATE ${BASH_REMATCH[2]}: ${BASH_REMATCH[3]}"
    elif [[ -n $answer ]]; then
        lost "does not reach the archive, and ends"
    fi

    # In the database the effect and the verdict are one.
    ask "BEGIN"
    ask "SELECT lease.guard('$lease', $epoch)"
    ask "INSERT INTO ledger VALUES ('report', '$due_at', $epoch, '$name')"
    ask "SELECT standing, settled FROM lease.finish_occurrence('report', '$due_at', $attempt, $epoch)"
    read -r standing settled <<<"$answer"
    [[ $settled == t ]] || lost "finds that its attempt is $standing, and ends"
    ask "COMMIT"
}

compete
lead
