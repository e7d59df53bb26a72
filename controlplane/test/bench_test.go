package test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// BenchmarkWrites measures writes of objects of 2 KB by 16 clients, each of which waits for its answer,
// with etcd that waits for the disk (up --fsync) and with a PostgreSQL that does, then a restart and a
// list of all objects. Run it with
// -benchtime=3000x. The rows of PostgreSQL are to be read as a part of those of etcd.
func BenchmarkWrites(b *testing.B) {
	b.Run("etcd", func(b *testing.B) { writes(b, "--fsync") })
	b.Run("PostgreSQL", func(b *testing.B) {
		server := ownPostgres(b, "-c", "fsync=on")
		writes(b, server.endpointFile(b, server.createDatabase(b)))
	})
}

func writes(b *testing.B, arg string) {
	dir := b.TempDir()
	p := up(b, "--role=hub", "--dir="+dir, arg)
	config := p.config()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	noError(b, err)
	maps := client.CoreV1().ConfigMaps("default")
	object := func(i int64, value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%d", i)},
			Data: map[string]string{"value": value + strings.Repeat("x", 2000)}}
	}
	b.ReportMetric(rate(b, func(i int64) error {
		_, err := maps.Create(b.Context(), object(i, "1"), metav1.CreateOptions{})
		return err
	}), "creates/s")
	b.ReportMetric(rate(b, func(i int64) error {
		_, err := maps.Update(b.Context(), object(i, "2"), metav1.UpdateOptions{})
		return err
	}), "updates/s")
	p.stop()
	start := time.Now()
	p = up(b, "--role=hub", "--dir="+dir, arg)
	b.ReportMetric(time.Since(start).Seconds(), "restart-s")
	start = time.Now()
	_, err = p.client().CoreV1().ConfigMaps("default").List(b.Context(), metav1.ListOptions{})
	noError(b, err)
	b.ReportMetric(time.Since(start).Seconds(), "list-s")
}

// rate calls write b.N times from 16 goroutines, and returns how many calls a second that were.
func rate(b *testing.B, write func(i int64) error) float64 {
	b.Helper()
	var next atomic.Int64
	failed := make(chan error, 16)
	start := time.Now()
	for range cap(failed) {
		go func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := write(i); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range cap(failed) {
		noError(b, <-failed)
	}
	return float64(b.N) / time.Since(start).Seconds()
}
