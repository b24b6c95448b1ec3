# Defines the function `trap` in the shell of a session, before a script that may use `trap`.
# nacre's own EXIT trap, $_nacre_alone, saves the state of the shell. The function keeps the EXIT
# trap of the user in $_nacre_exit, and then nacre's EXIT trap is $_nacre_both, which also runs the
# trap of the user. All other traps are set by the builtin. In a subshell nacre has no EXIT trap, so
# the builtin sets all traps there.
trap() {
  { builtin local -; builtin set +aeux -B; } 2>/dev/null || builtin :
  builtin local _nacre_i _nacre_action _nacre_mine= _nacre_failed=0
  builtin local -a _nacre_others
  [[ ${1-} != -- ]] || builtin shift
  case ${1-} in
    -p | '')
      if (($# == 0)) || [[ $1 == -p ]]; then
        [[ ${2-} != -- ]] || builtin set -- -p "${@:3}"
        (($# > 1)) && builtin set -- "${@:2}" || builtin set -- EXIT {1..31} {34..64} DEBUG ERR RETURN
        for _nacre_i; do
          case ${_nacre_i^^} in
            EXIT | 0)
              _nacre_action=$(builtin trap -p EXIT)
              if [[ $_nacre_action != *_nacre_mark=* ]]; then
                [[ ! $_nacre_action ]] || builtin printf '%s\n' "$_nacre_action"
              elif [[ -v _nacre_exit ]]; then
                builtin printf "trap -- '%s' EXIT\n" "${_nacre_exit//\'/\'\\\'\'}"
              fi
              ;;
            *)
              builtin trap -p -- "$_nacre_i" 2>/dev/null && builtin continue
              _nacre_failed=1
              builtin printf '%s: line %s: trap: %s: invalid signal specification\n' \
                "$0" "${BASH_LINENO[0]}" "$_nacre_i" >&2
              ;;
          esac
        done
        builtin return "$_nacre_failed"
      fi
      ;;
    -[!-]*)
      builtin trap "$@"
      builtin return
      ;;
  esac
  if ((BASH_SUBSHELL)) || { (($# == 1)) && [[ ${1^^} != EXIT && $1 != 0 ]]; }; then
    builtin trap -- "$@"
    builtin return
  fi
  _nacre_action=-
  # A number in place of the action resets all signals of the list.
  if (($# > 1)) && [[ ! $1 || ${1//[0-9]/} ]]; then
    _nacre_action=$1
    builtin shift
  fi
  for _nacre_i; do
    case ${_nacre_i^^} in
      EXIT | 0) _nacre_mine=1 ;;
      *) _nacre_others+=("$_nacre_i") ;;
    esac
  done
  if [[ $_nacre_mine && $_nacre_action == - ]]; then
    builtin unset -v _nacre_exit
    builtin trap -- "$_nacre_alone" EXIT
  elif [[ $_nacre_mine ]]; then
    _nacre_exit=$_nacre_action
    builtin trap -- "$_nacre_both" EXIT
  fi
  # A message of the builtin would name this file, so the function prints the message itself.
  for _nacre_i in "${_nacre_others[@]}"; do
    builtin trap -- "$_nacre_action" "$_nacre_i" 2>/dev/null && builtin continue
    _nacre_failed=1
    builtin printf '%s: line %s: trap: %s: invalid signal specification\n' \
      "$0" "${BASH_LINENO[0]}" "$_nacre_i" >&2
  done
  builtin return "$_nacre_failed"
}
