package leader

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// bootFile has an id of the run of the kernel, which all containers of a machine share.
const bootFile = "/proc/sys/kernel/random/boot_id"

// localFileSystems are the types of file systems that one kernel at a time has: ext4, xfs, btrfs,
// tmpfs, overlayfs, f2fs and zfs.
var localFileSystems = []int64{0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0xF2F52010, 0x2FC12FC1}

// placeOf returns the place of an open file. It is an error if other machines may have the file
// open as well.
func placeOf(file *os.File) (place, error) {
	boot, err := os.ReadFile(bootFile)
	if err != nil {
		return place{}, err
	}
	var system syscall.Statfs_t
	if err := syscall.Fstatfs(int(file.Fd()), &system); err != nil {
		return place{}, fmt.Errorf("read the type of the file system: %w", err)
	}
	if kind := int64(system.Type); !slices.Contains(localFileSystems, kind) { //nolint:unconvert // int32 on some machines
		return place{}, fmt.Errorf("the file system, of type %#x, is not known to be of this machine only", kind)
	}
	var stat syscall.Stat_t
	if err := syscall.Fstat(int(file.Fd()), &stat); err != nil {
		return place{}, fmt.Errorf("read the number of the file: %w", err)
	}
	return place{Boot: strings.TrimSpace(string(boot)), Device: uint64(stat.Dev), Inode: stat.Ino}, nil //nolint:unconvert // as above
}
