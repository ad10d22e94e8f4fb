# Functions that the commands of the transcripts may use.

# until_line PATTERN FILE: waits until a line of the file matches.
until_line() {
  local i
  for i in $(seq 600); do
    grep -q -- "$1" "$2" 2>/dev/null && return
    sleep 0.05
  done
  echo "no line $1 in $2: $(cat "$2")" >&2
  return 1
}

# background FILE COMMAND…: starts it with its output in the file; `finish` ends it and prints the file.
background() {
  background_file=$1; shift
  : >"$background_file"
  "$@" >"$background_file" 2>&1 &
  background_pid=$!
}

finish() {
  kill "$background_pid" 2>/dev/null
  wait "$background_pid" 2>/dev/null
  cat "$background_file"
}
