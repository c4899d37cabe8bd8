# Impute a table by mice. Arguments: folder, method, m, maxit, seed.
# The folder has shape.txt (number of rows, then the number of categories of each column, 0 for numbers) and
# cells.bin (float64 by column, NaN where missing, categories as codes from 0). It receives imputed.bin (m tables).
given <- commandArgs(trailingOnly = TRUE)
shape <- scan(file.path(given[1], "shape.txt"), quiet = TRUE)
categories <- shape[-1]
cells <- readBin(file.path(given[1], "cells.bin"), "double", shape[1] * length(categories))
cells[is.nan(cells)] <- NA
table <- as.data.frame(matrix(cells, nrow = shape[1]))
methods <- rep(if (given[2] == "default") "pmm" else given[2], length(categories))
for (k in which(categories > 0)) {
  table[[k]] <- factor(table[[k]], levels = seq_len(categories[k]) - 1)
  if (given[2] %in% c("norm", "default")) methods[k] <- if (categories[k] == 2) "logreg" else "polyreg"
}
impute <- function(...) {
  found <- suppressWarnings(mice::mice(
    table, m = as.integer(given[3]), maxit = as.integer(given[4]), seed = as.integer(given[5]), method = methods,
    printFlag = FALSE, ...
  ))
  as.matrix(do.call(rbind, lapply(mice::complete(found, "all"), function(one) {
    vapply(one, function(x) if (is.factor(x)) as.double(x) - 1 else as.double(x), double(shape[1]))
  })))
}
imputed <- impute()
# By default mice leaves out collinear columns, and then does not impute them.
if (anyNA(imputed)) imputed <- impute(remove.collinear = FALSE)
writeBin(as.vector(t(imputed)), file.path(given[1], "imputed.bin"))
