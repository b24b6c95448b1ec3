# Read by the forked copy of a shell of a session, as that shell ends: writes down what the next one
# shall know. Descriptor $_nacre_fd is the draft, $_nacre_mark a word that no command can know before
# it runs, $_nacre_status and $_nacre_shopt what they were; $_nacre_from and $_nacre_home where the
# call had it begin and where the session stood. Aliases are off: they would change what this says.
{
  _nacre_set=$SHELLOPTS _nacre_posix=${POSIXLY_CORRECT-}
  POSIXLY_CORRECT=1 # here `unset` is found before a function of that name
  \unset -f builtin exec # which a waiting shell cannot do without
  _nacre_traps=$(builtin trap -p) # with names as POSIX has them; of INT and QUIT perhaps no words
  builtin enable alias compgen declare mapfile printf set shopt trap umask unset 2>/dev/null
  builtin trap '' HUP INT QUIT TERM PIPE XFSZ
  builtin trap - DEBUG ERR RETURN EXIT
  builtin set +o allexport +o errexit +o keyword +o noclobber +o noglob +o nounset \
    +o pipefail +o verbose +o xtrace +o functrace +o errtrace +o posix
  builtin shopt -u nocasematch extdebug

  # A shell that ends inside a function sees what is local there; what the session knows is behind
  # it. A mark on the global one tells which is which, and unsetting a caller's shows the next.
  _nacre_inside=
  for _nacre_i in "${FUNCNAME[@]}"; do
    # What reads a file is called so, too.
    [[ $_nacre_i != source ]] || builtin declare -F source >/dev/null && _nacre_inside+=x
  done
  _nacre_old= _nacre_here=${DIRSTACK[0]-} # PWD is whatever somebody has made of it
  [[ $_nacre_here ]] || _nacre_here=$PWD
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
        builtin unset -v "$_nacre_i" # behind the local one there was none: the mark has made it
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
    builtin unset -v IFS # with some, bash itself takes "$@" apart
    builtin printf '#%s functions\n' "$_nacre_mark"
    if builtin declare -F declare >/dev/null; then # which comes last, see `state.functions`
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
    builtin printf '%s\0' "${DIRSTACK[@]:1}"
    builtin printf '\n#%s arguments %s\n' "$_nacre_mark" "${_nacre_inside:0:1}"
    builtin printf '%s\0' "$#" "$@"
    builtin printf '\n#%s old %s\n' "$_nacre_mark" "$_nacre_old"
    builtin printf '#%s end\n' "$_nacre_mark"
  } >&"$_nacre_fd"
}
