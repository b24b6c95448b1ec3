# Sourced by the shell of a session after its state is restored: waits for the script of a command.
# An empty line on descriptor $_nacre_in means that the script is ready. Then $_nacre_file holds two
# texts, each ended by a NUL: the code for this call, and the script.
# bash parses this whole group before it runs any of it, and aliases are enabled last. So no alias
# of the session can change the meaning of this code.
{
  builtin unset -v _nacre_told
  # No array here: with some values of IFS bash splits it. On EOF or timeout the shell exits.
  [[ ! $_nacre_line ]] || builtin read "$_nacre_idle" -r -u "$_nacre_in" _nacre_line ||
    builtin exit 0
  builtin mapfile -d '' -t -u "$_nacre_file" _nacre_line # unlike `read`, `mapfile` ignores IFS
  BASH_EXECUTION_STRING=${_nacre_line[1]}
  [[ ${_nacre_bare-} ]] || builtin shopt -s expand_aliases
  exec {_nacre_in}<&- {_nacre_file}<&- {_nacre_state}<&- # `builtin exec` would not keep them closed
  builtin unset -v _nacre_in _nacre_file _nacre_state _nacre_idle _nacre_bare
  builtin eval "$_nacre_line"
}
