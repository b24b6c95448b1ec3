# Sourced first by the shell of a session: waits for a line on descriptor $_nacre_in. An empty line
# means that there is no state to restore and that the script of the command is ready. After any
# other line, the restore script on descriptor $_nacre_state is read into $_nacre_told. The shell
# runs that script outside this file, so that its functions belong to no file in error messages.
{
  builtin read "$_nacre_idle" -r -u "$_nacre_in" _nacre_line || builtin exit 0
  [[ ! $_nacre_line ]] || builtin mapfile -d '' -t -u "$_nacre_state" _nacre_told
}
