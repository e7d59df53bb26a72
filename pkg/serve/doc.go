// Package serve is the one HTTP listener of a command: Prometheus metrics under
// /metrics, liveness under /healthz, readiness under /readyz and, behind a flag,
// profiles under /debug/pprof.
//
//	registry := serve.NewRegistry()
//	server, err := serve.New(serve.Config{
//		Options:  options, // from flags, see Options.AddFlags
//		Registry: registry,
//		Ready:    []serve.Check{{Name: "broker", Func: link.Ready}},
//		Logger:   logger,
//	})
//	...
//	err = server.Run(ctx)
//
// It listens on loopback unless it is told otherwise, and beyond loopback only
// with TLS and a bearer token: [Options.Validate] refuses anything else. With a
// token, every path asks for it but /healthz and /readyz, which then tell a
// caller without one nothing but ok or not, so that a kubelet can probe them.
package serve
