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
	if _, err := os.Stat(files.path("etcd")); !errors.Is(err, os.ErrNotExist) {
		if err := os.RemoveAll(before); err != nil {
			return "", fmt.Errorf("removing older data: %w", err)
		}
		if err := os.Rename(files.path("etcd"), before); err != nil {
			return "", fmt.Errorf("moving the data away: %w", err)
		}
	}
	if err := os.Rename(made, files.path("etcd")); err != nil {
		return "", fmt.Errorf("putting the new data in place: %w", err)
	}
	return before, nil
}

// checkReplaced returns an error if a call of ReplaceData was interrupted when there were no data in place.
func (l layout) checkReplaced() error {
	there := func(name string) bool {
		_, err := os.Stat(l.path(name))
		return !errors.Is(err, os.ErrNotExist)
	}
	if there("etcd") || !there("etcd.new") && !there("etcd.before") {
		return nil
	}
	back := ""
	if there("etcd.before") {
		back = fmt.Sprintf(", or go back to the data of before: mv %s %s", l.path("etcd.before"), l.path("etcd"))
	}
	return fmt.Errorf("--dir=%s has no data, because a restore was interrupted; repeat it with controlplane restore%s", l.dir, back)
}
