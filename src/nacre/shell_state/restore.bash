# Read by a shell of a session first of all: waits until it is told who it is. What makes it so is a
# script, on descriptor $_nacre_state, that goes into $_nacre_told and is run by the shell itself: a
# function that is made there belongs to no file, and says so where it fails. An empty line on
# descriptor $_nacre_in says that there is nothing to be told, and that the script is there already.
{
  builtin read "$_nacre_idle" -r -u "$_nacre_in" _nacre_line || builtin exit 0
  [[ ! $_nacre_line ]] || builtin mapfile -d '' -t -u "$_nacre_state" _nacre_told
}
