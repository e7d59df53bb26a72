package plane

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestConfigCompleteReportsEveryFault(t *testing.T) {
	tests := map[string]struct {
		config Config
		want   []string // parts of the error; none: no error
	}{
		"nothing given":     {Config{}, []string{"--role must be hub or spoke", "--dir must name"}},
		"port too high":     {Config{Role: Hub, Dir: "d", Port: 65536}, []string{"--port=65536"}},
		"port negative":     {Config{Role: Hub, Dir: "d", Port: -1}, []string{"--port=-1"}},
		"nodes on a hub":    {Config{Role: Hub, Dir: "d", Nodes: 1}, []string{"a hub has no nodes"}},
		"too many nodes":    {Config{Role: Spoke, Dir: "d", Nodes: 1001}, []string{"--nodes=1001"}},
		"name with space":   {Config{Role: Spoke, Dir: "d", Name: "my spoke"}, []string{"--name=my spoke"}},
		"negative time":     {Config{Role: Spoke, Dir: "d", StartTimeout: -1}, []string{"--start-timeout"}},
		"no IP address":     {Config{Role: Hub, Dir: "d", BindAddress: "localhost"}, []string{"--bind-address=localhost must be an IP address"}},
		"no hostname":       {Config{Role: Hub, Dir: "d", Hosts: []string{"hub", "10.0.0.1", "a b"}}, []string{"--hostname=a b must be"}},
		"access of nobody":  {Config{Role: Hub, Dir: "d", Access: []Access{{File: "f"}}}, []string{"--kubeconfig-for=", "must be USER=FILE"}},
		"access nowhere":    {Config{Role: Hub, Dir: "d", Access: []Access{{User: "jane"}}}, []string{"--kubeconfig-for=jane= must be USER=FILE"}},
		"nothing to apply":  {Config{Role: Hub, Dir: "d", Apply: []string{"plane_test.go", "no.yaml"}}, []string{"--apply: ", "/no.yaml: no such file or directory"}},
		"two at once":       {Config{Role: "x", Dir: "d", Port: -1}, []string{"--role", "--port"}},
		"a hub":             {Config{Role: Hub, Dir: "d"}, nil},
		"a spoke, no nodes": {Config{Role: Spoke, Dir: "d"}, nil},
		"a hub for others": {Config{
			Role: Hub, Dir: "d", BindAddress: "::", Hosts: []string{"hub-api", "::1"},
			Access: []Access{{"jane", "file"}}, Apply: []string{"plane_test.go"},
		}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := test.config.complete()
			if len(test.want) == 0 {
				noError(t, err)
				for _, a := range got.Access {
					if !filepath.IsAbs(a.File) {
						t.Errorf("%s stays relative, for children that run elsewhere", a.File)
					}
				}
				for _, path := range got.Apply {
					if !filepath.IsAbs(path) {
						t.Errorf("%s stays relative, for children that run elsewhere", path)
					}
				}
				if got.BindAddress == "" || got.Name != string(test.config.Role) || !filepath.IsAbs(got.Dir) || got.StartTimeout != 2*time.Minute {
					t.Errorf("defaults not filled in: %+v", got)
				}
				return
			}
			for _, part := range test.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v does not mention %q", err, part)
				}
			}
		})
	}
}

func TestPlanNodes(t *testing.T) {
	tests := map[string]struct {
		present          []string
		n                int
		missing, surplus []string
	}{
		"fresh":    {nil, 2, []string{"node-1", "node-2"}, nil},
		"same":     {[]string{"node-2", "node-1"}, 2, nil, nil},
		"more":     {[]string{"node-1"}, 3, []string{"node-2", "node-3"}, nil},
		"fewer":    {[]string{"node-1", "node-2", "node-3"}, 1, nil, []string{"node-2", "node-3"}},
		"none":     {[]string{"node-1"}, 0, nil, []string{"node-1"}},
		"one gone": {[]string{"node-1", "node-3"}, 3, []string{"node-2"}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var present []corev1.Node
			for _, name := range test.present {
				present = append(present, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
			}
			missing, surplus := planNodes(present, test.n)
			if !slices.Equal(missing, test.missing) || !slices.Equal(surplus, test.surplus) {
				t.Errorf("missing %v, surplus %v; want %v, %v", missing, surplus, test.missing, test.surplus)
			}
		})
	}
}

func TestSchedulable(t *testing.T) {
	ready := corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
	notReady := corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}}
	tests := map[string]struct {
		node corev1.Node
		want bool
	}{
		"new":         {corev1.Node{}, false},
		"ready":       {corev1.Node{Status: ready}, true},
		"not ready":   {corev1.Node{Status: notReady}, false},
		"own taint":   {corev1.Node{Status: ready, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "gpu"}}}}, true},
		"still taint": {corev1.Node{Status: ready, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "node.kubernetes.io/not-ready"}}}}, false},
		"cordoned":    {corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := schedulable(test.node); got != test.want {
				t.Errorf("schedulable = %v, want %v", got, test.want)
			}
		})
	}
}

func TestChooseState(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	defer taken.Close()
	takenPort := taken.Addr().(*net.TCPAddr).Port
	free, err := freePort(loopback)
	noError(t, err)

	t.Run("a port of its own at first", func(t *testing.T) {
		state, err := chooseState(layout{t.TempDir()}, Config{Role: Hub, Name: "h", BindAddress: loopback})
		if err != nil || state.Port == 0 || state.Name != "h" {
			t.Errorf("state %+v, error %v", state, err)
		}
	})
	t.Run("the last port when free", func(t *testing.T) {
		files := layout{t.TempDir()}
		noError(t, files.writeState(State{Role: Hub, Name: "h", Port: free}))
		if state, err := chooseState(files, Config{Role: Hub, BindAddress: loopback}); err != nil || state.Port != free {
			t.Errorf("state %+v, error %v; want port %d", state, err, free)
		}
	})
	t.Run("another one when the last is taken", func(t *testing.T) {
		files := layout{t.TempDir()}
		noError(t, files.writeState(State{Role: Hub, Name: "h", Port: takenPort}))
		if state, err := chooseState(files, Config{Role: Hub, BindAddress: loopback}); err != nil || state.Port == takenPort || state.Port == 0 {
			t.Errorf("state %+v, error %v; want a port but %d", state, err, takenPort)
		}
	})
	t.Run("the given port is taken", func(t *testing.T) {
		_, err := chooseState(layout{t.TempDir()}, Config{Role: Hub, Port: takenPort, BindAddress: loopback})
		if err == nil || !strings.Contains(err.Error(), "port "+strconv.Itoa(takenPort)+" on 127.0.0.1 is taken") {
			t.Errorf("error %v", err)
		}
	})
	for bind, server := range map[string]string{
		loopback: "https://127.0.0.1:", "0.0.0.0": "https://127.0.0.1:", "127.0.0.2": "https://127.0.0.2:", "::": "https://127.0.0.1:",
	} {
		t.Run("reached at "+bind, func(t *testing.T) {
			state, err := chooseState(layout{t.TempDir()}, Config{Role: Hub, BindAddress: bind})
			if err != nil || state.Server() != server+strconv.Itoa(state.Port) {
				t.Errorf("server %s, error %v; want %sPORT", state.Server(), err, server)
			}
		})
	}
	t.Run("another role", func(t *testing.T) {
		files := layout{t.TempDir()}
		noError(t, files.writeState(State{Role: Hub, Name: "h", Port: free}))
		if _, err := chooseState(files, Config{Role: Spoke}); err == nil || !strings.Contains(err.Error(), "holds a hub control plane, not a spoke") {
			t.Errorf("error %v", err)
		}
	})
}

func TestLockIsExclusiveUntilClosed(t *testing.T) {
	files := layout{t.TempDir()}
	first, err := files.lock(0)
	noError(t, err)
	if _, err := files.lock(0); err == nil || !strings.Contains(err.Error(), "in use by another running control plane (process "+strconv.Itoa(os.Getpid())+")") {
		t.Errorf("second lock: error %v", err)
	}
	first.Close()
	again, err := files.lock(0)
	noError(t, err)
	again.Close()
}

func TestPrepareUnusableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	noError(t, os.WriteFile(file, nil, 0o600))
	err := layout{filepath.Join(file, "below")}.prepare()
	if err == nil || !strings.Contains(err.Error(), "cannot use --dir=") {
		t.Errorf("error %v", err)
	}
}

func TestPrograms(t *testing.T) {
	flag := func(p program, want string) {
		t.Helper()
		if !slices.Contains(p.args, want) {
			t.Errorf("%s lacks %s: %q", p.name, want, p.args)
		}
	}
	flag(etcd(false), "--unsafe-no-fsync=true")
	flag(etcd(true), "--unsafe-no-fsync=false")
	for _, role := range []Role{Hub, Spoke} {
		server := apiServer(role, loopback, 6443)
		flag(apiServer(role, "0.0.0.0", 6443), "--bind-address=0.0.0.0")
		for _, want := range []string{"--secure-port=6443", "--bind-address=127.0.0.1", "--anonymous-auth=false", "--authorization-mode=RBAC"} {
			flag(server, want)
		}
		for _, p := range controllers(role) {
			flag(p, "--kubeconfig=pki/"+p.name+".kubeconfig")
		}
	}
	if got := apiServer(Hub, loopback, 1).name; got != HubAPIServer {
		t.Errorf("a hub's API server is %s", got)
	}
	if n := len(controllers(Hub)); n != 1 {
		t.Errorf("a hub runs %d programs beside its API server, want the controller manager alone", n)
	}
	if p := datastore(Config{Fsync: true}); p.name != Etcd {
		t.Errorf("by default, the data is in %s", p.name)
	}
	if p := datastore(Config{Datastore: "postgres://u:secret@h/d"}); p.name != Kine || p.input != "postgres://u:secret@h/d" || len(p.args) > 0 {
		t.Errorf("with a database: %+v, want the URL on its standard input only", p)
	}
	for _, p := range append(controllers(Spoke), etcd(false), kine(""), apiServer(Spoke, loopback, 1)) {
		if p.grace <= 0 {
			t.Errorf("%s has no time to end", p.name)
		}
	}
}

func TestSettled(t *testing.T) {
	condition := func(kind apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus) apiextensionsv1.CustomResourceDefinitionCondition {
		return apiextensionsv1.CustomResourceDefinitionCondition{Type: kind, Status: status}
	}
	for name, test := range map[string]struct {
		conditions []apiextensionsv1.CustomResourceDefinitionCondition
		want       bool
	}{
		"new":         {nil, false},
		"accepted":    {[]apiextensionsv1.CustomResourceDefinitionCondition{condition("NamesAccepted", "True"), condition("Established", "False")}, false},
		"served":      {[]apiextensionsv1.CustomResourceDefinitionCondition{condition("NamesAccepted", "True"), condition("Established", "True")}, true},
		"names taken": {[]apiextensionsv1.CustomResourceDefinitionCondition{condition("NamesAccepted", "False"), condition("Established", "False")}, true},
	} {
		var definition apiextensionsv1.CustomResourceDefinition
		definition.Status.Conditions = test.conditions
		if got := isComplete(&definition); got != test.want {
			t.Errorf("%s: settled is %t", name, got)
		}
	}
}

func TestSource(t *testing.T) {
	plain, kustomized := t.TempDir(), t.TempDir()
	noError(t, os.WriteFile(filepath.Join(kustomized, "Kustomization"), nil, 0o600))
	for path, want := range map[string]string{
		plain: "--filename=" + plain, kustomized: "--kustomize=" + kustomized, "a.yaml": "--filename=a.yaml",
	} {
		if got := source(path); got != want {
			t.Errorf("kubectl's flag for %s is %s, want %s", path, got, want)
		}
	}
}

func TestReadStateOfNothing(t *testing.T) {
	if _, err := ReadState(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want one that wraps os.ErrNotExist", err)
	}
}

func FuzzDecodeState(f *testing.F) {
	f.Add([]byte(`{"role":"hub","name":"hub","port":6443}`))
	f.Add([]byte(`{"role":"cloud","port":6443}`))
	f.Add([]byte(`{"role":"spoke","port":-1}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeState(data)
		if err != nil {
			if s != (State{}) {
				t.Errorf("state %+v beside error %v", s, err)
			}
			return
		}
		if !s.Role.valid() || s.Port < 1 || s.Port > 65535 {
			t.Errorf("accepted %+v", s)
		}
	})
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReplaceMissingData: where there are no data, those of before stay: a call that was interrupted has moved them.
func TestReplaceMissingData(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	noError(t, os.WriteFile(in("state.json"), []byte(`{"role":"hub","port":6443}`), 0o600))
	noError(t, os.Mkdir(in("etcd.before"), 0o700))
	before, err := ReplaceData(dir, func(data string, _ Member) error { return os.MkdirAll(filepath.Join(data, "member"), 0o700) })
	if _, stat := os.Stat(in("etcd")); err != nil || stat != nil || before != in("etcd.before") {
		t.Errorf("%q, %v; the new data: %v", before, err, stat)
	}
	if _, err := os.Stat(in("etcd.before")); err != nil {
		t.Error(err)
	}
}

// TestInterruptedRestore: where a restore has moved the data away and put no others in their place, there is no start without data.
func TestInterruptedRestore(t *testing.T) {
	for name, c := range map[string]struct{ left, says []string }{
		"data of before": {[]string{"etcd.new", "etcd.before"}, []string{"controlplane restore", "mv "}},
		"no data before": {[]string{"etcd.new"}, []string{"because a restore was interrupted", "controlplane restore"}},
		"gone since":     {[]string{"etcd.before"}, []string{"has no data; restore", "mv "}},
		"an empty one":   {[]string{"etcd.new", "etcd.before", "etcd"}, []string{"because a restore was interrupted", "mv "}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			noError(t, os.WriteFile(filepath.Join(dir, "state.json"), []byte(`{"role":"hub","port":6443}`), 0o600))
			for _, left := range c.left {
				noError(t, os.Mkdir(filepath.Join(dir, left), 0o700))
			}
			err := Run(t.Context(), Config{Role: Hub, Dir: dir, StartTimeout: time.Second})
			for _, part := range c.says {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v, want one with %s", err, part)
				}
			}
			for _, left := range c.left {
				if _, err := os.Stat(filepath.Join(dir, left)); err != nil {
					t.Error(err)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "etcd", "member")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("there are data: %v", err)
			}
			if _, err := ReplaceData(dir, func(data string, _ Member) error { return os.MkdirAll(filepath.Join(data, "member"), 0o700) }); err != nil {
				t.Errorf("repeated: %v", err)
			}
			noError(t, layout{dir}.checkReplaced())
		})
	}
}
