package plane

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// Member is what etcd of a control plane has in its data: data of another member does not start.
type Member struct {
	Name           string
	PeerURLs       []string
	InitialCluster string
}

// EtcdURL is the URL of the socket of etcd or kine, relative to the directory of the control plane.
const EtcdURL = etcdURL

// ReplaceData replaces etcd's data in dir by what create makes in a new directory. It returns an
// error if a control plane runs in dir, or none has been started there. The data of before stays
// until the next call, in the directory that ReplaceData returns.
func ReplaceData(dir string, create func(data string, member Member) error) (before string, err error) {
	if err := CheckOwnData(dir); err != nil {
		return "", err
	}
	files := layout{dir}
	lock, err := files.lock(2 * time.Second)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	made := files.path("etcd.new")
	before = files.path("etcd.before")
	if err := os.RemoveAll(made); err != nil { // of a call that was interrupted
		return "", fmt.Errorf("removing old data: %w", err)
	}
	if err := create(made, Member{memberName, []string{etcdPeerURL}, memberName + "=" + etcdPeerURL}); err != nil {
		return "", errors.Join(err, os.RemoveAll(made))
	}
	// Without data, which a call that was interrupted may have moved away already, what is there of before stays.
	if files.there("etcd/member") {
		if err := os.RemoveAll(before); err != nil {
			return "", fmt.Errorf("removing older data: %w", err)
		}
		if err := os.Rename(files.path("etcd"), before); err != nil {
			return "", fmt.Errorf("moving the data away: %w", err)
		}
	} else if err := os.Remove(files.path("etcd")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("removing a directory without data: %w", err)
	}
	if err := os.Rename(made, files.path("etcd")); err != nil {
		return "", fmt.Errorf("putting the new data in place: %w", err)
	}
	return before, nil
}

// there reports whether a file or directory may be there.
func (l layout) there(name string) bool {
	_, err := os.Stat(l.path(name))
	return !errors.Is(err, os.ErrNotExist)
}

// checkReplaced returns an error if there are no data, though a call of ReplaceData has left some: it was interrupted, or they are gone
// since.
func (l layout) checkReplaced() error {
	if l.there("etcd/member") || !l.there("etcd.new") && !l.there("etcd.before") {
		return nil
	}
	why, back := "", ""
	if l.there("etcd.new") {
		why = ", because a restore was interrupted"
	}
	if l.there("etcd.before") {
		back = fmt.Sprintf(", or take those of before the last restore: mv -T %s %s", l.path("etcd.before"), l.path("etcd"))
	}
	return fmt.Errorf("--dir=%s has no data%s; restore a snapshot with controlplane restore%s", l.dir, why, back)
}
