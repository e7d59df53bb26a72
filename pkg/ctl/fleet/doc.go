// Package fleet reads clusters, works and sets from the hub's API for workctl, and summarizes them.
//
//	reader, err := fleet.NewReader(config)
//	snapshot, warnings, err := reader.Snapshot(ctx, "") // of all namespaces
//	summary := fleet.Summarize(snapshot, 10)
//	err = summary.Write(os.Stdout, cli.Style{}, 0)
//
// Lists are read in pages, and without the manifests of works, which are most of their bytes but not
// shown. Summaries and texts are pure.
package fleet
