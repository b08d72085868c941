// Package build knows what is part of a graph that is still being written: rows that carry the id of a build which is not done. Nobody
// sees them. repo/graph writes builds, and takes back those that are not finished.
package build

// Shown is the condition that a row of a table, by its name in the query, is not part of such a graph.
func Shown(table string) string {
	return "(" + table + ".build_id IS NULL OR NOT EXISTS (SELECT 1 FROM builds WHERE builds.id = " + table + ".build_id))"
}
