package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain makes the test binary the child programs too, by argv[0].
func TestMain(m *testing.M) {
	switch os.Args[0] {
	case "obedient": // says that it is there, ends on SIGTERM
		ExitWithParent()
		fmt.Println("up", os.Args[1:])
		time.Sleep(time.Hour) // the runtime takes select {} for a deadlock, if nothing else runs
	case "stubborn": // does not end on SIGTERM
		ExitWithParent()
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("up")
		time.Sleep(time.Hour)
	case "failing":
		fmt.Println("first line")
		fmt.Println("the reason")
		os.Exit(3)
	case "chatty": // writes until SIGTERM
		line, ended := append(bytes.Repeat([]byte("x"), 1<<10-1), '\n'), make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGTERM)
		for len(ended) == 0 {
			os.Stdout.Write(line)
			time.Sleep(100 * time.Microsecond)
		}
		fmt.Fprintln(os.Stderr, "the last words")
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func start(t *testing.T, name string, args ...string) (*Child, *Lifeline, string) {
	t.Helper()
	line, err := NewLifeline()
	noError(t, err)
	t.Cleanup(line.Close)
	dir := t.TempDir()
	log := filepath.Join(dir, name+".log")
	child, err := Start(Spec{Name: name, Args: args, Dir: dir, Log: log, Lifeline: line})
	noError(t, err)
	t.Cleanup(func() { child.Stop(0) })
	return child, line, log
}

func awaitLog(t *testing.T, log, want string) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; {
		data, _ := os.ReadFile(log)
		if strings.Contains(string(data), want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s holds %q, want %q", log, data, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestStopAsksFirst(t *testing.T) {
	child, _, log := start(t, "obedient", "--flag")
	awaitLog(t, log, "up [--flag]")
	if !child.Stop(time.Minute) {
		t.Error("the child had to be killed")
	}
}

func TestStopKillsWhoDoesNotListen(t *testing.T) {
	child, _, log := start(t, "stubborn")
	awaitLog(t, log, "up")
	if child.Stop(50 * time.Millisecond) {
		t.Error("a child that ignores SIGTERM went when asked")
	}
}

func TestChildEndsWithLifeline(t *testing.T) {
	child, line, log := start(t, "stubborn")
	awaitLog(t, log, "up")
	line.Close()
	select {
	case <-child.Done():
	case <-time.After(3 * time.Minute):
		t.Fatal("the child outlives its lifeline")
	}
}

func TestErrQuotesTheLog(t *testing.T) {
	child, _, log := start(t, "failing")
	err := child.Err().Error()
	for _, want := range []string{"failing ended by itself", "exit status 3", "the reason", log} {
		if !strings.Contains(err, want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
}

func TestKeepsOneEarlierLog(t *testing.T) {
	child, line, log := start(t, "failing")
	<-child.Done()
	noError(t, os.WriteFile(log, []byte("earlier\n"), 0o600))
	again, err := Start(Spec{Name: "failing", Dir: filepath.Dir(log), Log: log, Lifeline: line})
	noError(t, err)
	<-again.Done()
	if data, err := os.ReadFile(log + ".1"); err != nil || string(data) != "earlier\n" {
		t.Errorf("earlier log %q, error %v", data, err)
	}
	if data, err := os.ReadFile(log); err != nil || strings.Contains(string(data), "earlier") {
		t.Errorf("log %q, error %v", data, err)
	}
}

// TestLogsAreBounded: a new log of a child that writes without end begins while the child goes on, the one before it is kept, and the
// last words are there.
func TestLogsAreBounded(t *testing.T) {
	child, _, log := start(t, "chatty")
	const most = 100 << 10
	bounded, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(bounded)
		bound(log, most, 20*time.Millisecond, stop)
	}()
	sizes := func() (now, before int64) {
		for file, size := range map[string]*int64{log: &now, log + ".1": &before} {
			if info, err := os.Stat(file); err == nil {
				*size = info.Size()
			}
		}
		return now, before
	}
	renewals, last := 0, int64(0)
	for deadline := time.Now().Add(3 * time.Minute); renewals < 3; time.Sleep(time.Millisecond) {
		now, before := sizes()
		if now < last {
			renewals++
			if before <= most {
				t.Errorf("a new log began, and %d bytes of it are kept", before)
			}
		}
		if last = now; time.Now().After(deadline) {
			t.Fatalf("a new log began %d times, and has %d bytes, the previous one %d", renewals, now, before)
		}
	}
	close(stop)
	<-bounded
	child.Stop(time.Minute)
	if err := child.Err().Error(); !strings.Contains(err, "exit status 3") || !strings.Contains(err, "the last words") {
		t.Error(err)
	}
	if files, err := os.ReadDir(filepath.Dir(log)); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
}

func TestExitWithParentWithoutParentDoesNothing(t *testing.T) {
	program, err := os.Executable()
	noError(t, err)
	cmd := exec.Command(program)
	cmd.Args = []string{"obedient"}
	out, err := cmd.StdoutPipe()
	noError(t, err)
	noError(t, cmd.Start())
	if _, err := out.Read(make([]byte, 2)); err != nil {
		t.Errorf("it did not come up: %v", err)
	}
	cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // Wait tells
	cmd.Wait()                          //nolint:errcheck // it ends by the signal
	if !cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
		t.Errorf("it ended by itself: %s", cmd.ProcessState)
	}
}

func TestChildEnv(t *testing.T) {
	got := childEnv([]string{"HOME=/root", "ETCD_NAME=x", "KUBECONFIG=/y", "GOMAXPROCS=2", "NOTIFY_SOCKET=/z"})
	if !slices.Equal(got, []string{"HOME=/root", "GOMAXPROCS=2"}) {
		t.Errorf("kept %q", got)
	}
}

func TestLastLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	tests := map[string]string{
		"":                                   "",
		"one":                                "one",
		"one\ntwo\n\n":                       "two",
		strings.Repeat("x\n", 9000) + "last": "last",
		strings.Repeat("y", 9000):            strings.Repeat("y", 400) + "…",
	}
	for content, want := range tests {
		noError(t, os.WriteFile(path, []byte(content), 0o600))
		if got := lastLine(path); got != want {
			t.Errorf("last line %.50q, want %.50q", got, want)
		}
	}
	if got := lastLine(path + "x"); got != "" {
		t.Errorf("last line of no file: %q", got)
	}
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
