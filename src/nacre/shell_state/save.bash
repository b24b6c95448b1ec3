# Sourced by the forked copy of a session's shell when that shell ends: writes the state for the
# next shell. $_nacre_fd is the descriptor of the draft, $_nacre_mark a word that no command can
# know before it runs. $_nacre_status and $_nacre_shopt are the status and the options of the shell.
# $_nacre_from is the start directory of the call, $_nacre_home the directory of the session.
# $_nacre_root is the directory of a session whose directory is fixed.
# Aliases are off, because they would change the meaning of this code.
{
  _nacre_set=$SHELLOPTS _nacre_posix=${POSIXLY_CORRECT-}
  POSIXLY_CORRECT=1 # in POSIX mode the builtin `unset` hides a function of that name
  \unset -f builtin exec # not saved: a waiting shell needs the two builtins
  \unset -f _nacre_again
  [[ ! ${_nacre_both-} || $(builtin declare -f trap) != *_nacre_mine* ]] || \unset -f trap
  _nacre_traps=$(builtin trap -p) # POSIX signal names; the commands for INT and QUIT may be missing
  builtin enable alias compgen declare mapfile printf set shopt trap umask unset 2>/dev/null
  builtin trap '' HUP INT QUIT TERM PIPE XFSZ
  builtin trap - DEBUG ERR RETURN EXIT
  builtin set +o allexport +o errexit +o keyword +o noclobber +o noglob +o nounset \
    +o pipefail +o verbose +o xtrace +o functrace +o errtrace +o posix
  builtin shopt -u nocasematch extdebug

  # In a shell that ends inside a function, local variables hide the global ones of the session. The
  # attribute `t` marks the global variable. Unsetting a local variable uncovers the one behind it.
  _nacre_inside=
  for _nacre_i in "${FUNCNAME[@]}"; do
    # A sourced file also has the name `source` in FUNCNAME.
    [[ $_nacre_i != source ]] || builtin declare -F source >/dev/null && _nacre_inside+=x
  done
  _nacre_old= _nacre_here=${DIRSTACK[0]-} # a command may have assigned PWD
  [[ $_nacre_here ]] || _nacre_here=$PWD
  [[ $_nacre_root ]] && _nacre_from=$_nacre_here _nacre_home=$_nacre_root
  [[ $_nacre_from && $_nacre_here == "$_nacre_from" ]] && _nacre_old=' OLDPWD'
  if [[ $_nacre_inside ]]; then
    _nacre_bare() { builtin unset -v "$1"; }
    builtin mapfile -t _nacre_names < <(builtin compgen -A variable)
    for _nacre_i in "${_nacre_names[@]}"; do
      case $_nacre_i in
        _nacre_* | _ | BASH* | COMP_WORDBREAKS | DIRSTACK | EPOCH* | EUID | FUNCNAME | GROUPS | \
          HISTCMD | LINENO | OPTIND | PIPESTATUS | PPID | RANDOM | SECONDS | SHELLOPTS | SRANDOM | UID)
          continue
          ;;
      esac
      if [[ -R $_nacre_i ]]; then
        _nacre_old+=" $_nacre_i"
        continue
      fi
      builtin declare -g -t "$_nacre_i"
      builtin declare -n _nacre_seen=$_nacre_i
      for ((_nacre_n = ${#_nacre_inside}; _nacre_n; _nacre_n--)); do
        [[ ${_nacre_seen@a} == *t* ]] && break
        _nacre_bare "$_nacre_i"
      done
      [[ ${_nacre_seen@a} == *t* ]] || _nacre_old+=" $_nacre_i"
      if [[ ${_nacre_seen@a} == t && ! -v $_nacre_i ]]; then
        builtin unset -v "$_nacre_i" # no global variable existed: setting `t` created it
      else
        builtin declare -g +t "$_nacre_i"
      fi
      builtin unset -n _nacre_seen
    done
    builtin unset -f _nacre_bare
  fi

  {
    builtin printf '#%s status %s %s\n' "$_nacre_mark" "$_nacre_status" "${_nacre_late+unbegun}"
    builtin printf '#%s variables\n' "$_nacre_mark"
    builtin declare -p
    builtin unset -v IFS # with some values of IFS, bash splits even "$@"
    builtin printf '#%s functions\n' "$_nacre_mark"
    if builtin declare -F declare >/dev/null; then # saved last, see `build_functions` in state.py
      builtin mapfile -t _nacre_names < <(builtin compgen -A function)
      for _nacre_i in "${!_nacre_names[@]}"; do
        [[ ${_nacre_names[_nacre_i]} == declare ]] && builtin unset -v "_nacre_names[_nacre_i]"
      done
      ((${#_nacre_names[@]})) && builtin declare -f -- "${_nacre_names[@]}"
    else
      builtin declare -f
    fi
    builtin printf '#%s declare\n' "$_nacre_mark"
    builtin declare -f -- declare
    builtin printf '#%s attributes\n' "$_nacre_mark"
    builtin declare -Fx
    builtin declare -Fr
    builtin declare -Ft
    builtin printf '#%s names\n' "$_nacre_mark"
    builtin compgen -A function
    builtin printf '#%s aliases\n' "$_nacre_mark"
    builtin alias -p
    builtin printf '#%s options\n%s\n%s\n%s\n' \
      "$_nacre_mark" "$_nacre_set" "$_nacre_shopt" "$_nacre_posix"
    builtin printf '#%s traps\n%s\n' "$_nacre_mark" "$_nacre_traps"
    builtin printf '#%s umask\n' "$_nacre_mark"
    builtin umask
    builtin printf '#%s directory\n' "$_nacre_mark"
    if [[ $_nacre_from && $_nacre_here == "$_nacre_from" ]]; then
      builtin printf '%s' "$_nacre_home"
    else
      builtin printf '%s' "$_nacre_here"
    fi
    builtin printf '\n#%s stack\n' "$_nacre_mark"
    [[ $_nacre_root ]] || builtin printf '%s\0' "${DIRSTACK[@]:1}"
    builtin printf '\n#%s arguments %s\n' "$_nacre_mark" "${_nacre_inside:0:1}"
    builtin printf '%s\0' "$#" "$@"
    builtin printf '\n#%s old %s\n' "$_nacre_mark" "$_nacre_old"
    builtin printf '#%s end\n' "$_nacre_mark"
  } >&"$_nacre_fd"
}
