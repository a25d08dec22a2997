// Ceilings as rows of the table `ceiling`.
#include "base/status_macros.h"
#include "journal/database.h"

namespace moetune::journal {

Status Database::put_ceiling(const CeilingRecord& record, const Origin& origin) {
  return in_transaction([&]() -> Status {
    MOETUNE_ASSIGN_OR_RETURN(const int64_t device, names_.device(record.device));
    MOETUNE_ASSIGN_OR_RETURN(const int64_t from, names_.origin(origin));
    MOETUNE_ASSIGN_OR_RETURN(
        Statement insert,
        connection_.prepare("INSERT OR REPLACE INTO ceiling (device, origin, what, unix_ms,"
                            " read_bytes, read_bytes_per_s, read_name, operations_per_s,"
                            " operations_name) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"));
    insert.bind(device).bind(from).bind(record.what).bind(record.unix_ms).bind(record.read_bytes);
    insert.bind(record.read_bytes_per_s).bind(record.read_name).bind(record.operations_per_s);
    return insert.bind(record.operations_name).run();
  });
}

Result<std::optional<CeilingRecord>> Database::find_ceiling(const std::string& device,
                                                            const std::string& what,
                                                            const Origin& origin) {
  MOETUNE_ASSIGN_OR_RETURN(
      Statement row,
      connection_.prepare("SELECT c.unix_ms, c.read_bytes, c.read_bytes_per_s, c.read_name,"
                          " c.operations_per_s, c.operations_name FROM ceiling c"
                          " JOIN device d ON d.id = c.device JOIN origin o ON o.id = c.origin"
                          " WHERE d.key = ? AND c.what = ? AND o.program = ? AND o.toolchain = ?"));
  row.bind(device).bind(what).bind(origin.program).bind(toolchain_text(origin));
  MOETUNE_ASSIGN_OR_RETURN(const bool is_row, row.step());
  if (!is_row) return std::optional<CeilingRecord>();
  CeilingRecord record{.device = device, .what = what, .read_bytes = row.number(1)};
  record.unix_ms = row.number(0);
  record.read_bytes_per_s = row.real(2);
  record.read_name = row.text(3);
  record.operations_per_s = row.real(4);
  record.operations_name = row.text(5);
  return std::optional(std::move(record));
}

}  // namespace moetune::journal
