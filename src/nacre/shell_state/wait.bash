# Read by a shell of a session that is what it shall be, and waits for its script, until an empty line
# on descriptor $_nacre_in says that it is there. Then $_nacre_file holds two texts, each ended by a
# NUL: what belongs to this call, and the script.
# All of it is parsed before any of it is done, and aliases come last, so that none of those that a
# session has changes what this says.
{
  builtin unset -v _nacre_told
  # No list here: there is an IFS by which bash takes those apart. Who hears nothing is not wanted.
  [[ ! $_nacre_line ]] || builtin read "$_nacre_idle" -r -u "$_nacre_in" _nacre_line ||
    builtin exit 0
  builtin mapfile -d '' -t -u "$_nacre_file" _nacre_line # which, unlike `read`, knows no IFS
  BASH_EXECUTION_STRING=${_nacre_line[1]}
  [[ ${_nacre_bare-} ]] || builtin shopt -s expand_aliases
  exec {_nacre_in}<&- {_nacre_file}<&- {_nacre_state}<&- # after `builtin` it would not last
  builtin unset -v _nacre_in _nacre_file _nacre_state _nacre_idle _nacre_bare
  builtin eval "$_nacre_line"
}
