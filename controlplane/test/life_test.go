package test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLife takes one hub through restarts, a crash of its parent and one of a part, and looks for
// its data and its processes after each.
func TestLife(t *testing.T) { onStores(t, testLife) }

func testLife(t *testing.T, s store) {
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-", 30)) // longer than a socket's path may be
	args := append(s.args, "--role=hub", "--dir="+dir)
	p := up(t, args...)
	host := p.config().Host
	if _, err := p.client().CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	oldAccess, oldClient := p.config(), p.client()

	second := start(t, args...)
	if status := second.wait(); status != 1 || !strings.Contains(second.stderr.String(), "in use by another running control plane") {
		t.Errorf("a second up in the same directory: status %d, %s", status, second.stderr)
	}

	// Killed, the parent cannot stop its children.
	children := p.children()
	p.cmd.Process.Kill() //nolint:errcheck // wait tells
	p.wait()
	eventually(t, "the children of a killed parent end", func() error {
		for pid, name := range children {
			if alive(pid) {
				return fmt.Errorf("%s (%d) is alive", name, pid)
			}
		}
		return nil
	})

	p = up(t, args...)
	if p.config().Host != host {
		t.Errorf("the port changed: %s, then %s", host, p.config().Host)
	}
	if _, err := oldClient.CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("with the credentials of before (%s), after a crash: %v", oldAccess.Host, err)
	}

	// A part that ends takes the whole down, with a reason.
	children = p.children()
	for pid, name := range children {
		if name == s.program {
			syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // wait tells
		}
	}
	if status := p.wait(); status != 1 || !strings.Contains(p.stderr.String(), "controlplane: "+s.program+" ended by itself (signal: killed)") {
		t.Errorf("without its data: status %d, %s", status, p.stderr)
	}
	for pid, name := range children {
		if alive(pid) {
			t.Errorf("%s (%d) is left behind", name, pid)
		}
	}

	p = up(t, args...)
	if _, err := p.client().CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("after %s was killed: %v", s.program, err)
	}
	p.stop()
}

// TestSnapshot restores a snapshot, after refusals.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-", 30)) // longer than a socket's path may be
	file := filepath.Join(t.TempDir(), "snapshot.db")
	run := func(want string, args ...string) {
		t.Helper()
		out, err := exec.Command(binary, append(args, "--dir="+dir)...).CombinedOutput()
		if (err == nil) != (want == "") || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s, want %q", args, err, out, want)
		}
	}
	run("is not ready", "snapshot", "--output="+file)
	run("no such file", "restore", "--snapshot="+file)
	p := up(t, "--role=hub", "--dir="+dir)
	maps := p.client().CoreV1().ConfigMaps("default")
	create := func(name string) string {
		t.Helper()
		made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		noError(t, err)
		return made.ResourceVersion
	}
	create("before")
	run("", "snapshot", "--output="+file)
	version := create("after")
	run("in use by another running control plane", "restore", "--snapshot="+file)
	p.stop()
	run("", "restore", "--snapshot="+file)
	for _, bump := range []string{"", "1000000000"} {
		p = up(t, "--role=hub", "--dir="+dir)
		maps = p.client().CoreV1().ConfigMaps("default")
		list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "!x"})
		noError(t, err)
		for _, object := range list.Items {
			if object.Name == "after" {
				t.Error("the snapshot was not restored")
			}
		}
		if _, err := maps.Get(t.Context(), "before", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if later := len(list.ResourceVersion) > len(version); later != (bump != "") {
			t.Errorf("the resource version is %s, was %s", list.ResourceVersion, version)
		}
		p.stop()
		run("", "restore", "--snapshot="+file, "--bump-revision=1000000000")
	}
}

func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, "--role=hub", "--dir="+dir)
	eventually(t, "a child starts", func() error {
		_, err := os.Stat(filepath.Join(dir, "logs", "etcd.log"))
		return err
	})
	p.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // wait tells
	if status := p.wait(); status != 1 || !strings.Contains(p.stderr.String(), "stopped before the control plane was ready") {
		t.Errorf("status %d, %s", status, p.stderr)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	file := filepath.Join(t.TempDir(), "file")
	noError(t, os.WriteFile(file, nil, 0o600))
	tests := map[string]struct {
		args []string
		want string
	}{
		"port taken":         {[]string{"--role=hub", "--dir=" + t.TempDir(), "--port=" + port}, "port " + port + " on 127.0.0.1 is taken by another program"},
		"directory unusable": {[]string{"--role=hub", "--dir=" + file + "/below"}, "cannot use --dir=" + file + "/below: "},
		"no role":            {[]string{"--dir=" + t.TempDir()}, "--role must be hub or spoke"},
		"no directory":       {[]string{"--role=hub"}, "--dir must name the directory"},
		"nodes of a hub":     {[]string{"--role=hub", "--dir=" + t.TempDir(), "--nodes=2"}, "a hub has no nodes"},
		"unknown flag":       {[]string{"--rolle=hub"}, "unknown flag: --rolle"},
		"no time to start":   {[]string{"--role=hub", "--dir=" + t.TempDir(), "--start-timeout=1ms"}, "was not ready within 1ms"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := start(t, test.args...)
			if printed := p.ready(); printed != "" {
				t.Errorf("up printed %q", printed)
			}
			if status := p.wait(); status != 1 {
				t.Errorf("status %d, want 1", status)
			}
			// The last line is the reason; progress may stand before it.
			lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
			if last := lines[len(lines)-1]; !strings.HasPrefix(last, "controlplane: ") || !strings.Contains(last, test.want) {
				t.Errorf("up says %q, want %q", last, test.want)
			}
		})
	}
}
