"""Regression tests: commands that once evaded a safety rule or were refused by mistake."""

import pytest

from tests.prepare.safety.test_step import rule

REFUSED = r"""
mkdir x && cd / && rm -rf *
cd /tmp && cd / && rm -rf *
x=1 && cd ~ && rm -rf *
for f in /*; do rm -rf "$f"; done
cd / && for f in *; do rm -rf "$f"; done
mkfs.vfat -n BOOT /dev/sdb1
mkfs.ext4 -i 1024 /dev/sda1
mkswap -p 4096 /dev/sda2
sgdisk -n 1:0:0 /dev/sda
parted -s /dev/sda mklabel gpt print
cryptsetup luksFormat /dev/sda
nvme format /dev/nvme0n1
chmod -R -x /
chmod -R -rwx /etc
chown -R --reference=f /
echo ':(){ :|:& };:' | bash
bash <<< ':(){ :|:& };:'
b() { sleep 1; b | b & }; b
b() { while :; do b & done; }; b
perl -e 'while(1){fork}'
find / -exec sudo rm {} \;
find / -exec sh -c 'rm -rf "$1"' _ {} \;
find -O3 / -delete
printf '%s\0' /tmp/x /etc | xargs -0 rm -rf
echo / | xargs -I{} bash -c 'rm -rf {}'
echo etc | xargs -I{} rm -rf /{}
{ echo 'rm -rf /'; } | bash
{ echo ls; echo 'rm -rf /'; } | sh
echo 'rm -rf /' | tee log | bash
command echo 'rm -rf /' | sh
printf '%b' 'rm -rf /\n' | sh
bash < <(echo 'rm -rf /')
bash <(echo rm -rf /)
source <(echo rm -rf /)
echo 'rm -rf "$1"' | bash -s -- /
sudo -k rm -rf /
su root -c 'rm -rf /'
su - -c 'rm -rf /'
flock /tmp/l --command 'rm -rf /'
bash -c 'rm -rf $0' /
x=/ bash -c 'rm -rf $x'
export x=/; bash -c 'rm -rf $x'
rm${IFS}-rf${IFS}/
d=/; f() { local d=/tmp/x; }; f; rm -rf $d
unset x; rm -rf "$x"/
f() { rm -rf "/$1"; }; f
f() { shift; rm -rf "$1"; }; f x /
arr=(); arr+=(/); rm -rf "${arr[@]}"
x=(/ etc); rm -rf ${x[0]}${x[1]}
x=/tmp; rm -rf ${x/tmp/etc}
x=/abc; rm -rf ${x:0:1}
x=ETC; rm -rf /${x,,}
x=y; y=/; rm -rf ${!x}
read x <<< /; rm -rf $x
a[$(rm -rf /)]=1
shopt -s extglob; rm -rf /!(tmp)
shopt -s extglob; rm -rf /@(etc|usr)
rm --r --f /
rm -rf /home/*/*
cd /dev && dd if=x of=sda
cd /dev; echo x > sda
dd if=x of=/dev/mtdblock0
dd if=x of=/dev/ubuntu-vg/ubuntu-lv
cp -t /dev/sda x
builtin cd / && rm -rf *
bash -c 'cd / && rm -rf *'
sudo bash -c 'cd /; rm -rf *'
su -c 'cd / && rm -rf *'
bash -c 'D=/; cd $D; rm -rf *'
bash -c 'cd / && find . -delete'
echo 'cd / && rm -rf *' | bash
trap 'cd /; rm -rf *' EXIT
gfind / -exec rm {} +
sudo(){ :; }; command sudo rm -rf /
export x=/tmp/a; env x=/ bash -c 'rm -rf $x'
echo '"/"' | xargs rm -rf
x=/; [ -d "$x" ] && rm -rf $x
$(which rm) -rf /
rm -rf {/tmp/{1..16}{1..15},/}
sudo -s <<< 'rm -rf /'
rm -rf ~/{*,.*}
sudo rm -rf ~/*
""".strip().split("\n")

RUNS = r"""
find / -name -delete
find / -exec echo -delete \;
echo 'rm -rf /' | bash -n
bash -n -c 'rm -rf /'
sfdisk -d /dev/sda
wipefs /dev/sda
hdparm -I /dev/sda
mdadm --detail /dev/md0
badblocks -sv /dev/sda
perl -e '$p = fork; fork if $p'
x=1; ((x++)); rm -rf /tmp/$x
while read d; do rm -rf "$d"; done < list
echo 'rm -rf /' > notes; cat notes | wc
f() { local d=/; }; d=/tmp/x; f; rm -rf $d
for f in ./*; do rm -rf "$f"; done
cd / && bash -c 'cd /tmp/x && rm -rf *'
cd ~ && bash -c 'cd proj && rm -rf *'
D=""; if [[ -n $D ]]; then rm -rf "/opt/$D"; fi
D=""; test -n "$D" && rm -rf "/opt/$D"
tmpdir=''; trap 'rm -rf "$tmpdir/"' EXIT; tmpdir=$(mktemp -d)
name=; if [ -n "$1" ]; then name=$1; fi; rm -rf "/opt/$name"
bash 3<<< 'rm -rf /'
echo 'rm -rf /' >&2 | sh
""".strip().split("\n")


def test_what_got_around_a_rule_does_not_any_more() -> None:
    assert [command for command in REFUSED if rule(command) is None] == []


def test_the_first_lines_of_too_much_are_still_judged() -> None:
    assert rule("rm -rf /\n" + "ls\n" * 5_000) == "disk.remove"
    assert rule("rm -rf /\n" + "(" * 500) == "disk.remove"


def test_what_is_harmless_runs() -> None:
    assert [(command, rule(command)) for command in RUNS if rule(command) is not None] == []


@pytest.mark.parametrize("place", ["/tmp/test/home", "/var/tmp/x"])
def test_a_home_in_a_temporary_place_does_not_make_that_place_sacred(place: str) -> None:
    from nacre.model.caller import Caller
    from nacre.model.plan import Command, Plan
    from nacre.prepare.safety.rule_selection import select_rules
    from nacre.prepare.safety.step import safety_step

    caller = Caller(cwd=b"/code", env={b"HOME": place.encode()})
    plan = Plan(command=Command(original=b"", script=b"rm -rf /tmp/* /var/tmp/*", cwd=b"/code"))
    assert safety_step(select_rules(["disk"]))(plan, caller) is plan


def test_the_git_pack() -> None:
    refused = [
        *("env GIT_AUTHOR_NAME=X git commit -m x", "git config committer.email x@y"),
        *("git config --remove-section user", 'git add "$PWD"', "git add ./*", "git add :/."),
    ]
    assert [each for each in refused if rule(each, "git") is None] == []
    runs = ["git add -n .", "git add --dry-run -A", "git push --dry-run -f", "git push -n -f"]
    assert [each for each in runs if rule(each, "git") is not None] == []


def test_the_workspace_pack() -> None:
    refused = [
        *('rm -rf "$PWD"/*', "rm -rf x/../*", "rm -rf ?*", "rm -rf .[^.]*", "rm -rf .??*"),
        *("rm -rf .git*", "rm -rf .gi*", "rm -rf .git/*", 'rm -rf "$(pwd)"/*'),
    ]
    assert [each for each in refused if rule(each, "workspace") is None] == []
