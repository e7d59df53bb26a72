package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/test/kit"
)

// ask returns what the agent's listener answers.
func ask(address, path string) string {
	response, err := http.Get("http://" + address + path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	return fmt.Sprintf("%d %s", response.StatusCode, body)
}

// TestDisk fills the disk with the state directory, kills the agent, and damages its file. The
// agent goes on in each case: it applies works, says what is wrong, and no object is made again.
func TestDisk(t *testing.T) {
	disk := kit.NewDisk(t, 8<<20)
	works, file := newSource(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	address := listener.Addr().String()
	kit.NoError(t, listener.Close())
	agent := launch(t, file, disk.Dir, "--listen-address="+address, "--disable-leader-election")
	kill := func() {
		t.Helper()
		kit.NoError(t, agent.Process.Kill())
		_ = agent.Wait()
	}
	restart := func() {
		t.Helper()
		agent = launch(t, file, disk.Dir, "--listen-address="+address, "--disable-leader-election")
	}
	client, err := kubernetes.NewForConfig(plane.REST())
	kit.NoError(t, err)
	names := []string{"disk-first"}
	applied(t, works, "disk-first", "")
	uid := func() types.UID {
		t.Helper()
		object, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "handover-disk-first", metav1.GetOptions{})
		kit.NoError(t, err)
		return object.UID
	}
	original := uid()

	free := disk.Fill()
	apply := func(prefix string) {
		t.Helper()
		for i := range 12 { // more than the agent may leave unacknowledged
			name := fmt.Sprint(prefix, i)
			applied(t, works, name, strings.Repeat("x", 50_000))
			names = append(names, name)
		}
	}
	apply("disk-full")
	said := func(what, path, want string) {
		t.Helper()
		kit.Eventually(t, what, func() error {
			if got := ask(address, path); !strings.Contains(got, want) {
				return fmt.Errorf("%s answers %.500s, want %q", path, got, want)
			}
			return nil
		})
	}
	said("the failure", "/readyz", "works in memory only")
	said("the metric", "/metrics", "workwire_agent_state_in_memory_only 1")
	kill()
	restart()
	apply("disk-restart")
	free()
	said("the recovery", "/readyz", "200 ok")
	said("the metric", "/metrics", "workwire_agent_state_in_memory_only 0")

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(disk.Dir, "state.db")
	for round := range 3 {
		kill()
		data, err := os.ReadFile(path)
		kit.NoError(t, err)
		for range 50 {
			data[random.IntN(len(data))] ^= byte(1 + random.IntN(255))
		}
		kit.NoError(t, os.WriteFile(path, data, 0o600))
		restart()
		name := fmt.Sprint("disk-damaged", round)
		applied(t, works, name, "")
		names = append(names, name)
	}
	if saved, _ := filepath.Glob(path + ".damaged-*"); len(saved) == 0 {
		t.Error("no damaged file was set aside")
	}
	if uid() != original {
		t.Error("the object of the first work was made again")
	}
	deleted(t, works, names...)
}
